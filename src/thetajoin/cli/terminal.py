"""Text on a terminal: what comes from a user's data, files and conditions is shown as it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table
from rich.text import Text

from thetajoin.secrets import redact

# What a terminal acts upon: control characters, and those that change the direction of writing. A
# file's name may also hold bytes that are no text at all, which Python keeps as lone surrogates.
_ACTS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_UNBOUNDED = 1_000_000  # columns


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to whoever called, where rich would end the process."""
        raise BrokenPipeError


def screen(*, errors: bool = False) -> Console:
    """A console on which nothing is markup: `[red]` and `:smile:` are letters like any others.

    Tables are fitted to a terminal's width; in a pipe they are as wide as they need to be.
    """
    console = _Screen(stderr=errors, markup=False, emoji=False, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _UNBOUNDED
    return console


def literal(value: object) -> str:
    """A value's text with its control characters written out, and without secrets.

    >>> literal("a\\x1b[31mb\\nc [red]")
    'a\\\\x1b[31mb\\\\nc [red]'
    """
    text = redact(str(value))
    return _ACTS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def say(console: Console, text: object) -> None:
    """Print one line."""
    console.print(literal(text))


def write(console: Console, lines: str) -> None:
    """Print lines as they are."""
    try:
        console.file.write(lines)
    except BrokenPipeError:  # click ends the process for one that says which error it is
        raise BrokenPipeError from None


def complain(text: object) -> None:
    """Print one line about what went wrong."""
    say(screen(errors=True), f"thetajoin: {text}")


@contextmanager
def show_work(text: str) -> Iterator[Callable[[str], None]]:
    """Show that something goes on, on a terminal only; what is yielded changes the text."""
    console = screen(errors=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield lambda text: None
        return
    spinner = "line" if console.options.ascii_only else "dots"
    with console.status(Text(literal(text)), spinner=spinner) as status:
        yield lambda text: status.update(Text(literal(text)))


def grid(
    names: Iterable[str],
    rows: Iterable[Iterable[object]],
    right: Sequence[bool] = (),
    widths: Sequence[int] = (),
) -> Table:
    """Names and rows as a table; `right` says which columns are numbers, `widths` the least."""
    table = Table()
    for at, name in enumerate(names):
        table.add_column(
            literal(name),
            justify="right" if any(right[at : at + 1]) else "left",
            min_width=max(widths[at : at + 1], default=1),
        )
    for row in rows:
        table.add_row(*(literal(value) for value in row))
    return table


def format_count(number: int, thing: str) -> str:
    """A number of things.

    >>> format_count(1, "row"), format_count(1200, "row"), format_count(2, "match")
    ('1 row', '1,200 rows', '2 matches')
    """
    ending = "" if number == 1 else "es" if thing.endswith("ch") else "s"
    return f"{number:,} {thing}{ending}"


def megabytes(count: int) -> str:
    """A number of bytes.

    >>> megabytes(1_234_567), megabytes(1_200)
    ('1.2 MB', '1.2 kB')
    """
    return f"{count / 1e6:,.1f} MB" if count >= 1_000_000 else f"{count / 1e3:,.1f} kB"
