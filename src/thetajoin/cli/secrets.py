"""Values from the environment in job files: ``${NAME}``, put in when a job is read, never shown."""

from __future__ import annotations

import os
import re

from thetajoin.errors import OptionError
from thetajoin.secrets import Secret, hide

_NAMED = re.compile(r"\$\{([^}]*)\}")


def filled(text: str, where: str) -> str:
    """A text with its ``${NAME}`` replaced; the values are hidden from now on.

    >>> os.environ["THETAJOIN_EXAMPLE"] = "pa55word"
    >>> filled("user:${THETAJOIN_EXAMPLE}", "job.toml")
    [hidden]
    >>> from thetajoin.secrets import forget, redact
    >>> redact("cannot log in with pa55word")
    'cannot log in with [hidden]'
    >>> forget(), os.environ.pop("THETAJOIN_EXAMPLE")
    (None, 'pa55word')
    """

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if not os.environ.get(name):
            raise OptionError(f"{where}: the environment has no {name}, which ${{{name}}} asks for")
        hide(os.environ[name])
        return os.environ[name]

    full = _NAMED.sub(value, text)
    return full if full == text else Secret(full)
