"""Mails as text: headers, the sender's domain and the date, by fixed rules.

Anyone can send a mail, so every function accepts every string, and depends on no other mail.
"""

from __future__ import annotations

import datetime
import email.utils
import re

import numpy as np

UNKNOWN = "unknown"

_HEADER = re.compile(r"^([!-9;-~]+):[ \t]*(.*(?:\n[ \t].*)*)", re.MULTILINE)
_ADDRESS = re.compile(r"@\[?([a-z0-9][a-z0-9.-]*)", re.IGNORECASE)
# Labels under which countries register domains, as in bbc.co.uk: the domain then has three labels, not two.
_SECOND_LEVEL = frozenset(
    {"ac", "co", "com", "edu", "gen", "go", "gob", "gov", "mil", "ne", "net", "nom", "or", "org", "sch"}
)


def headers(mail: str) -> dict[str, str]:
    """Return the headers by lower-case name, unfolded to one line each, and without repetitions."""
    head = mail.replace("\r\n", "\n").partition("\n\n")[0]
    by_name: dict[str, str] = {}
    for name, value in _HEADER.findall(head):
        by_name.setdefault(name.lower(), " ".join(value.split()))
    return by_name


def sender_domain(mail: str) -> str:
    """Return the registered domain of the From header, or "unknown".

    The domain is the text after the last @ of the first From header, within its last angle brackets if there are any,
    in lower case and without dots at the ends. It is reduced to the last two labels, or three if the top level is a
    country and the label before it is one of ac, co, com, edu, ... Numeric addresses are not reduced. Sub-domains count
    as one source because the owner of a domain can create any number of them.

    Senders can forge this header. If a source must be something that costs an attacker money, use the domain that the
    receiving server authenticated (SPF, DKIM) instead.
    """
    value = headers(mail).get("from", "")
    bracketed = re.findall(r"<([^<>]*)>", value)
    domains = _ADDRESS.findall(bracketed[-1] if bracketed else value)
    labels = [label for label in domains[-1].lower().split(".") if label] if domains else []
    numeric = all(label.isdigit() for label in labels)
    if len(labels) < 2 or (numeric and len(labels) == 2):  # 7.0 is a number, and not every number can name a source
        return UNKNOWN
    if numeric:
        return ".".join(labels)
    country = len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SECOND_LEVEL
    return ".".join(labels[-3 if country else -2 :])


def sent_on(mail: str) -> np.datetime64:
    """Return the day in the Date header, as the sender wrote it, or NaT if it is not a date from 1990 to 2037."""
    try:
        parsed = email.utils.parsedate_tz(headers(mail).get("date", ""))
        day = datetime.date(*parsed[:3]) if parsed else None
    except (ValueError, TypeError, IndexError, OverflowError):
        day = None
    return np.datetime64(day if day is not None and 1990 <= day.year <= 2037 else "NaT", "D")
