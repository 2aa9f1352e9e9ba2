"""Errors a user can cause: one line that says what is wrong, where, and what would be right."""

from __future__ import annotations

import contextlib
import difflib
import re
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from thetajoin.secrets import redact

_LISTED = 12  # names listed in a message before the rest is counted
_LONGEST = 1200  # characters of a message
_QUOTED = 80  # characters of a fragment quoted in a message


class ThetaJoinError(Exception):
    """The base of all errors raised on purpose by this package.

    >>> str(ThetaJoinError("two\\n  lines"))
    'two lines'
    """

    def __init__(self, message: str) -> None:
        super().__init__(_readable(one_line(message)))


class ConditionError(ThetaJoinError):
    """A join condition that cannot be used; says where in it and what would be right.

    >>> raise ConditionError("unknown column", position=5, fragment="l.rq", hint="did you mean rp?")
    Traceback (most recent call last):
    thetajoin.errors.ConditionError: unknown column at position 5: `l.rq`; did you mean rp?
    """

    def __init__(
        self,
        problem: str,
        *,
        position: int | None = None,
        fragment: str = "",
        hint: str = "",
    ) -> None:
        where = f" at position {position}" if position is not None else ""
        quote = f": `{_shorten(fragment)}`" if fragment else ""
        super().__init__(f"{problem}{where}{quote}{'; ' if hint else ''}{hint}")
        self.position = position
        self.fragment = fragment


class SchemaError(ThetaJoinError):
    """An input whose columns, types or kind do not fit, or rows with another schema."""


class WindowError(ThetaJoinError):
    """A window that is missing, empty, or does not fit the inputs."""


class OptionError(ThetaJoinError):
    """An unknown option, or a value it cannot take."""


class UnknownOptionError(OptionError):
    """A name that is no option: perhaps one of `known`, or an argument that was mistyped."""

    name = ""
    known: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, name: str, known: Iterable[str], arguments: Iterable[str] = ()
    ) -> UnknownOptionError:
        """The error, which suggests an argument of the call or lists the options."""
        known = tuple(known)
        hint = suggest(name, [*arguments, *known])
        if not hint.startswith("did you"):
            hint = suggest(name, known)
        error = cls(f"unknown option {name!r}: {hint}")
        error.name, error.known = name, known
        return error


class SnapshotError(ThetaJoinError):
    """Bytes that are not a snapshot of this operator and version, or are damaged."""


class DataError(ThetaJoinError):
    """A value that an expression cannot take: overflow, division by zero, a bad cast."""


class ResourceError(ThetaJoinError):
    """Not enough memory or disk for what was asked; says what to do about it."""


@contextlib.contextmanager
def enough_memory(advice: str) -> Iterator[None]:
    """Report that memory ran out inside, with what to do about it; what is kept here is let go."""
    try:
        yield
    except MemoryError as error:
        from thetajoin.arrays import drop_kept  # takes NumPy, which few errors need

        # What the functions that failed had in hand comes first, or it would be kept afterwards.
        traceback.clear_frames(error.__traceback__)
        drop_kept()
        raise ResourceError(f"there is not enough memory for this: {advice}") from error
    except RuntimeError as error:
        if "can't start new thread" not in str(error):
            raise
        raise ResourceError(f"there is not enough memory for another thread: {advice}") from error


def warn_user(message: str) -> None:
    """Warn at the user's own line, however deep in the package this is called."""
    level, frame = 2, sys._getframe(1).f_back
    while frame is not None:
        level += 1
        if frame.f_globals.get("__name__", "").split(".")[0] not in ("thetajoin", "contextlib"):
            break
        frame = frame.f_back
    warnings.warn(message, stacklevel=level)


def is_text(value: object) -> TypeGuard[str]:
    """Whether a value is text that can be encoded; lone surrogates cannot."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_line(message: str) -> str:
    """The message without line breaks, secrets, and what cannot be printed."""
    printable = redact(message).encode("utf-8", "backslashreplace").decode()
    return re.sub(r"\s*[\r\n]+\s*", " ", printable).strip()


def _readable(message: str) -> str:
    """The message without the middle of something very long that it quotes."""
    if len(message) <= _LONGEST:
        return message
    return f"{message[: _LONGEST // 2]} ... {message[-_LONGEST // 3 :]}"


def suggest(name: str, names: Iterable[str]) -> str:
    """A hint that names the closest of `names`, or lists them; O(len(names)).

    >>> suggest("pric", ["price", "time"])
    "did you mean 'price'?"
    >>> suggest("zzz", ["price", "time"])
    'there are: price, time'
    """
    known = list(dict.fromkeys(names))
    by_lower = {other.lower(): other for other in reversed(known)}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    if close:
        return f"did you mean {by_lower[close[0]]!r}?"
    if not known:
        return "there are none"
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"there are: {', '.join(known[:_LISTED])}{more}"


def _shorten(fragment: str) -> str:
    text = one_line(fragment)
    return text if len(text) <= _QUOTED else text[: _QUOTED - 3] + "..."
