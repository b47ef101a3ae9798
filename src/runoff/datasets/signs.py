"""Signs of spam in a mail: hand-written rules, as spam filters have used since the 1990s.

The rules are fixed, so no training mail can change the signs of another one. Members learn the weight of each sign.
The time to match all patterns is proportional to the length of the mail, for any mail.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from runoff.datasets.mails import headers

LONGEST, LONGEST_HEADER = 200_000, 1_000  # characters that are read

# Headers that the mail program of the sender writes. Those of lists, servers and collectors reveal the collection.
_HEADERS = ("content-type", "content-transfer-encoding", "in-reply-to", "references", "mime-version", "user-agent")


def signs_of(mails: Sequence[str]) -> NDArray[np.uint8]:
    """Return the signs of each mail, as zeros and ones of shape (n_mails, len(SIGNS)).

    Signs are searched for in the subject, in the decoded body, with and without HTML tags, and in a few headers that
    the mail program of the sender writes. Tags in brackets in the subject and footers below a line of underscores,
    which list servers add, are ignored.
    """
    table = np.zeros((len(mails), len(SIGNS)), np.uint8)
    for row, mail in zip(table, mails, strict=True):
        parts = _parts(mail[:LONGEST])
        for column, (part, pattern, least) in enumerate(_COMPILED):
            row[column] = sum(1 for _ in islice(pattern.finditer(parts[part]), least)) == least
    return table


def text_of(mail: str) -> str:
    """Return the visible text of a mail: the subject and the decoded body without tags, as `signs_of` reads them.

    Use it for word features. Headers of lists, servers and collectors are omitted, since they reveal the collection.
    """
    parts = _parts(mail[:LONGEST])
    return f"{parts['subject']}\n{parts['text']}"


def _parts(mail: str) -> dict[str, str]:
    """Return the parts of a mail that signs are searched for in."""
    mail = mail.replace("\r\n", "\n")
    head, body = headers(mail), _decoded(mail.partition("\n\n")[2])
    body = re.sub(r"\n_{20,}[\s\S]*", "", body)
    return {
        "subject": re.sub(r"\[[^\[\]]*\]", "", head.get("subject", "")[:LONGEST_HEADER]).strip(),
        "head": "\n".join(f"{name}: {head.get(name, '')[:LONGEST_HEADER]}" for name in _HEADERS),
        "body": body,
        "text": re.sub(r"<[^<>]{1,2000}>", " ", body),
    }


def _decoded(body: str) -> str:
    """Return a body with its quoted-printable and base64 parts decoded, as far as that is possible."""

    def block(match: re.Match[str]) -> str:
        try:
            return binascii.a2b_base64(match[0]).decode("latin-1")
        except (binascii.Error, ValueError):
            return ""

    body = re.sub(r"(?:^[A-Za-z0-9+/]{60,76}\n){2,}(?:[A-Za-z0-9+/]{0,76}={0,2}$)?", block, body, flags=re.MULTILINE)
    if re.search(r"=3D|=20$|=\n", body):
        body = re.sub(r"=([0-9A-F]{2})", lambda match: chr(int(match[1], 16)), body.replace("=\n", ""))
    return body


# By part: a pattern that must occur, or a pattern and the number of times that it must occur.
_BY_PART: dict[str, tuple[str | tuple[str, int], ...]] = {
    # in the subject: case matters
    "subject": (
        r"^(?:[Rr][Ee]|[Ff]w|FW|[Aa][Ww]): ?",
        r"^(?=.*[A-Z]{3})[^a-z]+$",
        r"\b[A-Z]{4,}\b",
        r"!",
        (r"!", 2),
        r"\$",
        r"\d%|\d{2,}",
        r"\?",
        r"\d{3,}$|\s{3,}|[^\x00-\x7f]|=\?",
        r"(?i)\b(?:free|save|money|cash|win|offer|earn|income|profit|guarantee|rates?|debt|loans?|credit)",
        r"(?i)\b(?:you|your|you're)\b",
        r"(?i)\b(?:adv|adult|sex|porn|viagra|hot|lose|weight)\b",
        r"^[a-z]",
        r"[\w-]+\.[\w-]+|[/()_]",
    ),
    "head": (
        r"content-type: text/html",
        r"content-type: multipart",
        r"content-type: text/plain",
        r"content-type: *\n",
        r"(?i)charset=\"?(?:us-ascii|utf-8|iso-8859-15?\b)",
        r"encoding: (?:base64|quoted)",
        r"encoding: 8bit",
        r"in-reply-to: .",
        r"references: .",
        r"mime-version: .",
        r"user-agent: .",
    ),
    # in the body without HTML tags; "body" is the body with them
    "text": (
        r"(?m)^ ?>",
        r"(?i)\bwrote:|\bwrites:|\bsaid:",
        r"(?m)^-- ?$|^--\w|^ {0,9}[-~=]{2,90} {0,9}$",
        r"(?i)click (?:here|below|on)|(?:here|below)\W{1,9}click",
        r"(?i)click",
        r"(?i)\bremoved?\b",
        r"(?i)unsubscribe|opt[- ]?(?:in|out)",
        r"(?i)(?:remove|unsubscribe|opt[- ]out).{1,80}(?:list|mail)",
        r"(?i)(?:list|mail).{1,80}(?:remove|unsubscribe|opt[- ]out)",
        r"(?i)\bfree\b",
        r"FREE",
        r"(?i)100 ?%",
        r"\$\d",
        r"\$\d[\d,]*[,.]?000|(?i:\bmillions?\b)",
        r"\$\$",
        r"!!",
        (r"!", 4),
        r"(?i)\bmoney\b|\bcash\b",
        r"(?i)\bguaranteed?\b",
        r"(?i)\boffers?\b",
        r"(?i)\border(?:s|ing)?\b",
        r"(?i)\bcredit\b",
        r"(?i)\bsav(?:e|ings?)\b",
        r"(?i)\bincome\b|\bprofits?\b|\bearn(?:ings)?\b",
        r"(?i)\bbusiness\b",
        r"(?i)\bmortgages?\b|\bloans?\b|\bdebts?\b|\brefinanc",
        r"(?i)\binsurance\b|\binvest",
        r"(?i)\bviagra\b|\bweight\b|\bpills?\b|\bhealth\b",
        r"(?i)\bsex|\bporn|\badults?\b|\bgirls?\b|\bxxx\b",
        r"(?i)\bdear\b",
        r"(?i)\bact now\b|\btoday\b|\blimited time\b|\bhurry\b|\binstant",
        r"(?i)\bcall\b|\btoll[- ]free\b|\b1-8\d\d-",
        r"(?i)\bno (?:obligation|cost|risk|fee|experience)|\brisk[- ]free",
        r"(?i)this (?:e-?mail|message|mailing)",
        r"(?i)\breceiv(?:e|ed|ing)\b",
        r"(?i)\be-?mail address(?:es)?\b|\bbulk\b",
        r"(?i)\bvisit\b|\bwebsite\b|\bweb ?site\b",
        r"(?i)\bnow\b",
        r"(?i)\byour\b",
        (r"(?i)\byou(?:r|rs)?\b", 6),
        r"\bI\b",
        (r"\bI\b", 3),
        r"(?i)\bI(?:'m|'ve|'d|'ll)\b|n't\b",
        r"(?i)\bI (?:think|guess|have|was|am|don't|would|use|just|know)\b",
        r"(?i)\b(?:but|though|actually|maybe|probably|yeah|hmm|anyway)\b",
        r"(?i)\b(?:thanks|cheers|regards|hi|hello|hey)\b",
        r"(?i)\b(?:file|files|code|version|bug|install|script|server|kernel|package|build|perl|linux|unix)\b",
        r"(?i)\b(?:he|she|they|his|her|their)\b",
        r"(?i)\bon (?:mon|tue|wed|thu|fri|sat|sun)",
        r"(?i)\d (?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6} (?:19|20)\d\d",
        r"[;:]-?[)(]",
        r"\b[A-Z]{4,}\b",
        (r"\b[A-Z]{4,}\b", 5),
        r"\b[A-Z]{2,20} [A-Z]{2,20} [A-Z]{2}",
        r"[\x80-\xff]",
        (r"[\x80-\xff]", 8),
        r"\w{25,}",
        r"(?m)\w\(|[{};]$",
        r"\w/\w{1,40}/\w",
        r"^[\s\S]{0,400}$",
        r"^[\s\S]{1500}",
        r"^[\s\S]{5000}",
        r"(?m)^.{100}",
    ),
    "body": (
        r"(?i)<html|<body",
        r"(?i)<font",
        r"(?i)<table",
        r"(?i)<img",
        r"(?i)<a\s+href",
        r"(?i)<(?:center|b|br)>",
        r"(?i)color ?=|bgcolor",
        r"(?i)<!--",
        r"(?i)<form|<input|<script",
        r"(?i)https?://",
        (r"(?i)https?://", 3),
        r"(?i)https?://\d",
        r"(?i)https?://[^\s/\"'>]{1,80}/[^\s\"'>]{0,200}[?&=]",
        r"(?i)mailto:",
        r"\w@\w",
        r"(?i)\.(?:biz|info|cn|ru|tw|kr)\b",
        r"BEGIN PGP|(?m:^(?:\+\+\+|---|@@) )",
    ),
}
SIGNS: tuple[tuple[str, str, int], ...] = tuple(
    (part, *(sign if isinstance(sign, tuple) else (sign, 1))) for part, signs in _BY_PART.items() for sign in signs
)
_COMPILED = tuple((part, re.compile(pattern), least) for part, pattern, least in SIGNS)
