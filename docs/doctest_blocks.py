"""For the API reference: examples in docstrings become code blocks, single quotes stay code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^( *)>>> .*\n?(?:^(?! *$).*\n?)*", re.MULTILINE)


class DoctestBlocks(griffe.Extension):
    """Fences every run of lines that begins with ``>>>``."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(
                lambda found: f"\n```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value
            )
