"""Hooks of the website: pages from the repository's root, links that work in both places, no requests to other hosts.

mkdocs calls these functions (`hooks` in mkdocs.yml). Links in the pages are written for the repository, relative to the
file that contains them. On the site, pages of the root are beside those of docs/, examples are sections of the gallery,
and links to other files, such as notebooks, lead to the repository.
"""

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
REPOSITORY = "https://github.com/runoff-ml/runoff"
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
FENCES = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r'(?P<before>\]\(|(?:src|href)=")(?P<target>[^)"\s]+)(?P<after>[)"])')
# What a browser loads by itself, in contrast to a link that a reader follows.
LOADED = re.compile(
    r'<(?:script|img|iframe|source)\b[^>]*\bsrc="(?:https?:)?//[^"]*|<link\b[^>]*\bhref="(?:https?:)?//[^"]*'
)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the repository's root."""
    for name, uri in ROOT_PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    uri = page.file.src_uri
    origin = next((name for name, at in ROOT_PAGES.items() if at == uri), f"docs/{uri}")

    def rewritten(match: re.Match[str]) -> str:
        target = site_link(match["target"], origin, uri)
        return f"{match['before']}{target}{match['after']}"

    parts = FENCES.split(markdown)  # prose, code, prose, ...
    return "".join(part if i % 2 else LINK.sub(rewritten, part) for i, part in enumerate(parts))


def site_link(target: str, origin: str, uri: str) -> str:
    """Return where a link leads on the site, from the page at `uri` that is made of the file `origin`."""
    if re.match(r"[a-z]+:|#", target):
        return target
    file, hash_, anchor = target.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), file))
    if path in ROOT_PAGES:
        place = ROOT_PAGES[path]
    elif path.startswith("docs/"):
        place = path.removeprefix("docs/")
    elif path.startswith("examples/") and path.endswith(".py"):
        place, hash_, anchor = "gallery.md", "#", _heading(ROOT / path)
    else:
        return f"{REPOSITORY}/blob/main/{path}{hash_}{anchor}"
    return f"{posixpath.relpath(place, posixpath.dirname(uri) or '.')}{hash_}{anchor}"


def _heading(example: Path) -> str:
    """Return the anchor of an example in the gallery, whose headings are the first lines of the docstrings."""
    title = (ast.get_docstring(ast.parse(example.read_text())) or "").partition("\n")[0]
    return re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-")


def on_post_build(config: Any) -> None:
    """Refuse pages that load anything from another host."""
    for page in sorted(Path(config.site_dir).rglob("*.html")):
        if loaded := LOADED.search(page.read_text()):
            raise PluginError(f"{page} loads from another host: {loaded[0]}")
