"""The papers' clauses, read and blanked out; the rest is Spark's SQL, parsed by sqlglot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from thetajoin.batch.files import format_of
from thetajoin.errors import ConditionError
from thetajoin.predicate.parse import Source, parse

_STRINGS = re.compile(r"'(?:\\.|''|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`[^`]*`|--[^\n]*|/\*.*?\*/", re.S)
_ONLINE = re.compile(r"\bSELECT\s+(ONLINE)\b(?!\s*(?:,|\.|\(|AS\b|FROM\b))", re.I)
_UNIT = (
    r"(weeks?|days?|hours?|hrs?|minutes?|mins?|seconds?|secs?|milliseconds?|microseconds?"
    r"|nanoseconds?|[wdhs]|[mun]s)\b"
)
_WITHIN = re.compile(
    rf"\bWITHIN\s+(?:INTERVAL\s+)?(?:'\s*(\d+(?:\.\d+)?)(?:\s+{_UNIT})?\s*'|(\d+(?:\.\d+)?)\b)"
    rf"(?:\s+{_UNIT})?(?:\s+ON\s+([\w.`]+)(?:\s*,\s*([\w.`]+))?)?",
    re.I,
)
_WINDOW = re.compile(r"\bWINDOW\s+AS\s*\(([^()]*)\)", re.I)
_SLIDE = re.compile(
    r"\s*SLIDE\s+INTERVAL\s+'?(\d+)'?\s+ON\s+COUNT\s+'?(\d+)'?"
    r"(?:\s+ORDER\s+BY\s+([\w.`]+)(?:\s*,\s*([\w.`]+))?)?\s*$",
    re.I,
)
# Spark's word order, and one that sqlglot knows: both are of one length.
_SIDED_ASOF = re.compile(
    r"\b((?:INNER|LEFT|RIGHT|FULL)(?:\s+OUTER)?)(\s+)(ASOF)(?=\s+JOIN\b)", re.I
)
_NEAREST = re.compile(
    r"\b(?:APPROX|EXACT)\s+NEAREST(?:\s+(\d+))?\s+BY\s+(DISTANCE|SIMILARITY)\b", re.I
)
_FIRST_WORDS = {"select", "with", "from", "values", "table"}
MOST_NEAREST = 100_000  # as in Spark
MOST_DIGITS = 18  # of a number in a clause
USE_SLIDE = "write WINDOW AS (SLIDE INTERVAL '100000' ON COUNT '1000000')"


@dataclass(frozen=True)
class WindowClause:
    """A window as written: a length of time, or a count with its slide, and columns if named."""

    length: str | int | None = None
    size: int | None = None
    slide: int = 1
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Parsed:
    """A query's tree and its window."""

    source: Source
    tree: Any
    window: WindowClause | None


def parse_query(query: str) -> Parsed:
    """Read a query; positions in errors are those of the text as given."""
    if not isinstance(query, str):
        raise ConditionError(f"a query is text, not {type(query).__name__}")
    if not query.strip(" \t\r\n;"):
        raise ConditionError("the query is empty", hint="write SELECT ... FROM a JOIN b ON ...")
    plain = _STRINGS.sub(lambda match: " " * len(match[0]), query)
    outside = _add_numbers(query, plain)
    text, window = query.rstrip().removesuffix(";"), None
    blanks: list[tuple[int, int]] = []
    online = _ONLINE.search(plain)
    if online:
        blanks.append(online.span(1))
    found = list(_WITHIN.finditer(outside))
    clauses = [*found, *_WINDOW.finditer(outside)]
    if len(clauses) > 1:
        raise _at(query, clauses[1].span(), "a query has one window", "leave one of the two out")
    for clause in clauses:
        blanks.append(clause.span())
        window = _within(query, clause) if clause in found else _sliding(query, clause)
    for start, end in blanks:
        text = text[:start] + " " * (end - start) + text[end:]
    for sided in _SIDED_ASOF.finditer(plain):
        turned = text[slice(*sided.span(3))] + sided[2] + text[slice(*sided.span(1))]
        text = text[: sided.start()] + turned + text[sided.end() :]
    nearest = list(_NEAREST.finditer(plain))
    for clause in nearest:
        text = text[: clause.start()] + "ON".rjust(len(clause[0])) + text[clause.end() :]
    source = Source(_with_names(text), "in the query: ", "query")
    tree = _parse(source)
    for clause in nearest:
        _set_nearest(query, tree, clause)
    return Parsed(source, tree, window)


def _parse(source: Source) -> Any:
    try:
        return parse(source)
    except ConditionError:
        first = re.match(r"\s*(\w+)", source.text)
        if first is not None and first[1].lower() not in _FIRST_WORDS | keywords():
            raise _at(
                source.text,
                first.span(1),
                "a query begins with SELECT",
                "a query reads like SELECT a.x, b.y FROM a JOIN b ON a.x < b.y",
            ) from None
        raise


def _with_names(text: str) -> str:
    """The query with names of columns in backquotes where they are in double quotes, as in t."x".

    Elsewhere what is in double quotes is text, as in Spark.
    """
    for match in _STRINGS.finditer(text):
        start, end = match.span()
        beside = text[:start].rstrip().endswith(".") or text[end:].lstrip().startswith(".")
        if match[0].startswith('"') and beside and "`" not in match[0]:
            text = f"{text[:start]}`{match[0][1:-1]}`{text[end:]}"
    return text


def _set_nearest(query: str, tree: Any, clause: re.Match[str]) -> None:
    """Say of the join that a NEAREST BY belongs to how many rows it takes, and which."""
    from sqlglot import exp

    found = []
    for join in tree.find_all(exp.Join):
        on = join.args.get("on")
        starts = [n.meta["start"] for n in on.walk() if "start" in n.meta] if on else []
        if starts and min(starts) >= clause.end():
            found.append((min(starts), join))
    k = _whole(query, clause, clause[1] or "1")
    if not found:
        raise _at(
            query, clause.span(), "NEAREST BY says what is near", "... BY DISTANCE abs(a - b)"
        )
    if not 1 <= k <= MOST_NEAREST:
        problem = f"NEAREST takes 1 to {MOST_NEAREST} rows, not {k}"
        raise _at(query, clause.span(), problem, "write NEAREST 3 BY DISTANCE abs(a.x - b.x)")
    join = min(found, key=lambda one: one[0])[1]
    join.meta["nearest"] = k, clause[2].upper()
    what = " ".join(filter(None, (join.args.get("side"), join.args.get("kind"))))
    if what not in ("", "INNER", "LEFT", "LEFT OUTER", "OUTER") or join.args.get("method"):
        raise _at(
            query,
            clause.span(),
            f"NEAREST BY is for JOIN and LEFT JOIN, not {what} JOIN",
            "swap the tables",
        )


@cache
def keywords() -> frozenset[str]:
    """Words that mean something in SQL, in lower case."""
    from sqlglot.dialects.spark import Spark

    return frozenset(word.lower() for word in Spark.Tokenizer.KEYWORDS)


def _add_numbers(query: str, plain: str) -> str:
    """The query with quoted text blanked, but for numbers, which windows are written with."""
    kept = list(plain)
    for match in re.finditer(r"'\s*\d+(?:\.\d+)?(?:\s+[a-z]+)?\s*'", query, re.I):
        if not plain[match.start() : match.end()].strip():
            kept[match.start() : match.end()] = match[0]
    return "".join(kept)


def _within(query: str, clause: re.Match[str]) -> WindowClause:
    number, unit = clause[1] or clause[3], clause[2] or clause[4]
    columns = tuple(name.replace("`", "") for name in (clause[5], clause[6]) if name)
    if unit:
        return WindowClause(length=f"{number} {unit}", columns=columns)
    return WindowClause(length=_whole(query, clause, number), columns=columns)


def _sliding(query: str, clause: re.Match[str]) -> WindowClause:
    inside = _SLIDE.match(clause[1])
    if inside is None:
        raise _at(query, clause.span(), "this window is not understood", USE_SLIDE)
    columns = tuple(name.replace("`", "") for name in (inside[3], inside[4]) if name)
    slide, size = (_whole(query, clause, number) for number in (inside[1], inside[2]))
    return WindowClause(size=size, slide=slide, columns=columns)


def _whole(query: str, clause: re.Match[str], number: str) -> int:
    if not number.isdigit():
        problem = "a window without a unit of time is a whole number"
        raise _at(query, clause.span(), problem, "write WITHIN 90 seconds, or WITHIN 2 ON n")
    if len(number) > MOST_DIGITS:
        problem = f"a window of a number with {len(number)} digits is too large"
        raise _at(query, clause.span(), problem, f"write one of at most {MOST_DIGITS} digits")
    return int(number)


def _at(query: str, span: tuple[int, int], problem: str, hint: str) -> ConditionError:
    return ConditionError(
        f"in the query: {problem}", position=span[0] + 1, fragment=query[slice(*span)], hint=hint
    )


def is_path(name: str) -> bool:
    """Whether a name in FROM can only be a file's: table names have no such characters.

    >>> is_path("trades.parquet"), is_path("s3://bucket/*.csv"), is_path("trades")
    (True, True, False)
    """
    return any(character in name for character in "/\\*") or format_of(name) is not None


@contextmanager
def not_too_deep() -> Iterator[None]:
    """Everything that goes through a query's expressions calls itself for what is inside them."""
    try:
        yield
    except RecursionError:
        raise ConditionError("in the query: an expression is nested too deeply") from None
