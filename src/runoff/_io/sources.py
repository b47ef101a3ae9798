"""Digests of source code that ignore docstrings, comments and layout."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path


def code_digest(paths: Iterable[Path]) -> str:
    """Return a SHA-256 of the code of Python files and folders, independent of where the package is installed.

    Folders are read recursively. A file is identified by its path relative to the folder.
    """
    hashed = hashlib.sha256()
    for path in paths:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            hashed.update(
                f"{file.relative_to(path.parent).as_posix()}\n{canonical(file.read_text('utf-8'))}\n".encode()
            )
    return hashed.hexdigest()


def canonical(source: str) -> str:
    """Return the syntax tree of some code as a string, without docstrings.

    Empty fields are left out, since new versions of Python add such fields.
    """
    return "".join(_dumped(ast.parse(source)))


def _dumped(node: object) -> Iterator[str]:
    if isinstance(node, ast.AST):
        yield f"{type(node).__name__}("
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                value = [item for item in value if not _is_docstring(item)]
            if value is None or value == [] or isinstance(value, ast.expr_context):
                continue
            yield f"{name}="
            yield from _dumped(value)
            yield ","
        yield ")"
    elif isinstance(node, list):
        yield "["
        for item in node:
            yield from _dumped(item)
            yield ","
        yield "]"
    else:
        yield repr(node)


def _is_docstring(node: object) -> bool:
    """Return whether a statement is a bare string, which computes nothing."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
