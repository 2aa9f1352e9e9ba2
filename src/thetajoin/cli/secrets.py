"""Values from the environment in job files: ``${NAME}``, put in when a job is read, never shown."""

from __future__ import annotations

import os
import re

from thetajoin.errors import OptionError

_NAMED = re.compile(r"\$\{([^}]*)\}")
HIDDEN = "[hidden]"
_known: set[str] = set()


def filled(text: str, where: str) -> str:
    """A text with its ``${NAME}`` replaced; the values are hidden from now on.

    >>> os.environ["THETAJOIN_EXAMPLE"] = "pa55word"
    >>> filled("user:${THETAJOIN_EXAMPLE}", "job.toml")
    'user:pa55word'
    >>> redacted("cannot log in with pa55word")
    'cannot log in with [hidden]'
    >>> forget(), os.environ.pop("THETAJOIN_EXAMPLE")
    (None, 'pa55word')
    """

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if not os.environ.get(name):
            raise OptionError(f"{where}: the environment has no {name}, which ${{{name}}} asks for")
        _known.add(os.environ[name])
        return os.environ[name]

    return _NAMED.sub(value, text)


def redacted(text: str) -> str:
    """A text without the values that came from the environment."""
    for value in sorted(_known, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text


def any_known() -> bool:
    """Whether there is anything to hide."""
    return bool(_known)


def forget() -> None:
    """Hide nothing any more."""
    _known.clear()
