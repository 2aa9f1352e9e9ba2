"""What is never shown: values to hide, however they are encoded, and passwords in URLs.

Messages are made of other programs' messages, which quote, escape and encode. So a value is looked
for in all the forms it may have by then, and before anything is shortened: the first half of a
password is one, too.
"""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from functools import cache
from urllib.parse import quote, quote_plus

HIDDEN = "[hidden]"
_known: set[str] = set()
# A URL's user and password end at the last @ before its path; passwords may have an @ in them.
_IN_ADDRESS = re.compile(r"(://[^\s/:\"'\\]*):[^\s/\"']*@|(://)[^\s/:\"'\\]+@")
_IN_QUERY = re.compile(
    r"([?&;](?:password|passwd|pwd|secret|token|access_?key|api_?key|sig)=)[^\s&;\"'\\]+",
    re.IGNORECASE,
)


class Secret(str):
    """A text that no representation shows: not in a dictionary, a dataclass or a traceback.

    `str` does show it, because PySpark makes texts of all options that way. What is printed goes
    through `redact`.

    >>> {"password": Secret("pa55word")}
    {'password': [hidden]}
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN


def hide(value: str) -> None:
    """Show a value nowhere from now on."""
    if value:
        _known.add(value)


def forget() -> None:
    """Hide nothing any more."""
    _known.clear()


def any_known() -> bool:
    """Whether there is anything to hide."""
    return bool(_known)


def redact(text: str) -> str:
    """A text without the values to hide, however they are written in it.

    >>> hide('pa"ss word')
    >>> redact('{"password": "pa\\\\"ss word"} at jdbc:x?p=pa%22ss+word')
    '{"password": "[hidden]"} at jdbc:x?p=[hidden]'
    >>> forget()
    """
    if not _known:
        return text
    forms = {form for value in _known for form in _forms(value)}
    for form in sorted(forms, key=len, reverse=True):
        text = re.sub(re.escape(form), lambda _: HIDDEN, text) if form else text
    return text


@cache
def _forms(value: str) -> frozenset[str]:
    """A value as other programs write it: JSON, Python, shells, URLs, XML, Java's settings."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("'", "\\'")
    once = {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        escaped,
        escaped.replace("\\'", "'"),
        value.encode("unicode_escape").decode(),
        shlex.quote(value),
        value.replace("'", "'\"'\"'"),
        value.replace("'", "''"),
        html.escape(value),
        html.escape(value, quote=False),
        " ".join(value.split()),
    }
    # A line of JSON in a field of another.
    twice = {json.dumps(form)[1:-1] for form in once}
    urls = {
        quote(value, safe=""),
        quote(value),
        quote_plus(value),
        quote(value, safe="/:@!$&'()*,"),
    }
    urls |= {re.sub("%..", lambda found: found[0].lower(), form) for form in urls}
    coded = {base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()}
    return frozenset(form for form in once | twice | urls | coded if form.strip())


def hide_passwords(text: str) -> str:
    """A text in which URLs show no password.

    >>> hide_passwords("'s3://id:secret@bucket/a.csv' and jdbc:x://h/db?user=u;password=p")
    "'s3://id:[hidden]@bucket/a.csv' and jdbc:x://h/db?user=u;password=[hidden]"
    >>> hide_passwords("kafka://u:p@ss@host")
    'kafka://u:[hidden]@host'
    """
    text = _IN_ADDRESS.sub(
        lambda found: f"{found[1]}:{HIDDEN}@" if found[1] else f"{found[2]}{HIDDEN}@", text
    )
    return _IN_QUERY.sub(rf"\1{HIDDEN}", text)
