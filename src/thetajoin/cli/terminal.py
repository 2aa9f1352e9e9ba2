"""Text on a terminal: what comes from a user's data, files and conditions is shown as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

# What a terminal acts upon: control characters, and those that change the direction of writing. A
# file's name may also hold bytes that are no text at all, which Python keeps as lone surrogates.
_ACTS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_UNBOUNDED = 1_000_000  # columns


def screen(*, errors: bool = False) -> Console:
    """A console on which nothing is markup: `[red]` and `:smile:` are letters like any others.

    Tables are fitted to a terminal's width; in a pipe they are as wide as they need to be.
    """
    console = Console(stderr=errors, markup=False, emoji=False, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _UNBOUNDED
    return console


def literal(value: object) -> str:
    """A value's text with its control characters written out.

    >>> literal("a\\x1b[31mb\\nc [red]")
    'a\\\\x1b[31mb\\\\nc [red]'
    """
    return _ACTS.sub(lambda found: found[0].encode("unicode_escape").decode(), str(value))


def say(console: Console, text: object) -> None:
    """Print one line."""
    console.print(literal(text))


def complain(text: object) -> None:
    """Print one line about what went wrong."""
    say(screen(errors=True), f"thetajoin: {text}")


def grid(names: Iterable[str], rows: Iterable[Iterable[object]]) -> Table:
    """Names and rows as a table."""
    table = Table()
    for name in names:
        table.add_column(literal(name))
    for row in rows:
        table.add_row(*(literal(value) for value in row))
    return table
