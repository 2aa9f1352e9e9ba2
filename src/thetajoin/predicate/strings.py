"""String functions on Arrow arrays, with Spark's rules."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from thetajoin.errors import DataError
from thetajoin.predicate.arrays import Array, pc, rowwise
from thetajoin.predicate.types import BINARY, BOOL, INT, STRING

Arrays = list[Array]


def length(args: Arrays, _: pa.DataType) -> Array:
    """Characters of a string, bytes of a binary."""
    name = "binary_length" if args[0].type == BINARY else "utf8_length"
    result: Array = pc.call_function(name, args).cast(INT)
    return result


def lower(args: Arrays, _: pa.DataType) -> Array:
    """Lower case."""
    result: Array = pc.utf8_lower(args[0])
    return result


def upper(args: Arrays, _: pa.DataType) -> Array:
    """Upper case."""
    result: Array = pc.utf8_upper(args[0])
    return result


def trim(args: Arrays, _: pa.DataType) -> Array:
    """Without spaces at both ends (spaces only, as Spark)."""
    result: Array = pc.utf8_trim(args[0], characters=" ")
    return result


def ltrim(args: Arrays, _: pa.DataType) -> Array:
    """Without leading spaces."""
    result: Array = pc.utf8_ltrim(args[0], characters=" ")
    return result


def rtrim(args: Arrays, _: pa.DataType) -> Array:
    """Without trailing spaces."""
    result: Array = pc.utf8_rtrim(args[0], characters=" ")
    return result


def concat(args: Arrays, _: pa.DataType) -> Array:
    """One after the other; NULL where one is."""
    joined: Array = pc.binary_join_element_wise(*args, pa.scalar("", STRING))
    return joined


def substring(args: Arrays, _: pa.DataType) -> Array:
    """From a position (1 is the first, -1 the last) for a number of characters."""

    def one(text: str, position: int, count: int = 2**31) -> str:
        start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
        return text[max(start, 0) : max(start + count, 0)]

    return rowwise(one, args, STRING)


def starts_with(args: Arrays, _: pa.DataType) -> Array:
    """Whether the first begins with the second."""
    return _search(args, "starts_with", str.startswith)


def ends_with(args: Arrays, _: pa.DataType) -> Array:
    """Whether the first ends with the second."""
    return _search(args, "ends_with", str.endswith)


def contains(args: Arrays, _: pa.DataType) -> Array:
    """Whether the second occurs in the first."""
    return _search(args, "match_substring", str.__contains__)


def like(args: Arrays, _: pa.DataType) -> Array:
    r"""SQL's LIKE; fast for one pattern, a microsecond a row for a column of them.

    >>> like([pa.array(["a_c", "abc"]), pa.array(["a\\_c", "a_c"])], BOOL).to_pylist()
    [True, True]
    """
    pattern, escape = _only(args[1]), _only(args[2]) if len(args) > 2 else "\\"
    if pattern is not None and escape is not None:
        regex = rf"(?s)\A{_like_regex(pattern, escape)}\z"
        found: Array = pc.match_substring_regex(args[0], pattern=regex)
        return found
    compiled: dict[tuple[str, str], re.Pattern[str]] = {}

    def one(text: str, pattern: str, escape: str = "\\") -> bool:
        key = (pattern, escape)
        if key not in compiled:
            compiled[key] = re.compile(_like_regex(pattern, escape), re.DOTALL)
        return compiled[key].fullmatch(text) is not None

    return rowwise(one, args, BOOL)


def _search(args: Arrays, name: str, one: Callable[[str, str], bool]) -> Array:
    pattern = _only(args[1])
    if pattern is None:
        return rowwise(one, args, BOOL)
    found: Array = getattr(pc, name)(args[0], pattern=pattern)
    return found


def _only(array: Array) -> str | None:
    """The value that all rows have, if there is one."""
    first = array[0] if len(array) else None
    if first is None or array.null_count or not pc.all(pc.equal(array, first)).as_py():
        return None
    return str(first.as_py())


def _like_regex(pattern: str, escape: str) -> str:
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following not in ("%", "_", escape):
                raise DataError(
                    f"LIKE pattern {pattern!r} escapes {following!r}; only % _ and {escape} can be"
                )
            parts.append(re.escape(following))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
    return "".join(parts)
