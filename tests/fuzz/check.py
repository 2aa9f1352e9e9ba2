"""Running a case and comparing what it gives with what it must give, row by row."""

from __future__ import annotations

import math
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import permutations
from typing import Any

import pyarrow as pa
from pyarrow import dataset

import naive
import thetajoin as tj
from fuzz.aggregates import Near
from fuzz.cases import Case
from fuzz.code import call_code
from fuzz.expected import Expected, Ids, expected, may_fail
from fuzz.kinds import from_array
from fuzz.meaning import FAILED
from fuzz.refusals import is_expected

PAYLOAD_ROWS = 2000  # of a result whose other columns are looked at


@dataclass(frozen=True)
class Outcome:
    """right, refused (as it may be), undecided (nothing to compare with), or wrong and why."""

    name: str
    why: str = ""
    detail: str = ""

    @property
    def wrong(self) -> bool:
        """Whether the package is at fault."""
        return self.name == "wrong"


def check(case: Case) -> Outcome:
    """Run a case."""
    want = expected(case)
    try:
        got = run(case)
    except tj.ThetaJoinError as error:
        if "\n" in str(error):
            return Outcome("wrong", "message of several lines", str(error))
        if type(error).__name__ == "DataError" and (want.notes.may_fail or may_fail(case)):
            return Outcome("refused", "DataError")
        known = is_expected(case, error)
        if known:
            return Outcome("refused", known)
        return Outcome("wrong", f"refused: {type(error).__name__}", str(error))
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
        return Outcome("wrong", f"raw {type(error).__name__} in {where}", str(error)[:300])
    if want.undecided or case.call == "explain":
        return Outcome("undecided" if want.undecided else "right")
    return compare(case, got, want)


def run(case: Case) -> Any:
    """The result of the case's call."""
    space: dict[str, Any] = {
        "tj": tj,
        "pa": pa,
        "ds": dataset,
        "UTC": UTC,
        "datetime": datetime,
        "timedelta": timedelta,
        "Decimal": Decimal,
    }
    if any("pandas" in given for given in case.inputs.values()):
        import pandas as pd

        space["pd"] = pd
    if {"polars", "lazy"} & set(case.inputs.values()):
        import polars as pl

        space["pl"] = pl
    for side, table in case.tables.items():
        space[side] = table.arrow()
    exec(call_code(case), space)
    return space["result"]


def compare(case: Case, result: Any, want: Expected) -> Outcome:
    """Rows or groups against those expected."""
    if want.groups is not None:
        return _compare_groups(case, as_arrow(result), want.groups)
    parts = result if isinstance(result, list) else [result]
    tables = [as_arrow(part) for part in parts]
    tables = [table for table in tables if table.num_columns]
    got: Counter[Ids] = Counter()
    for table in tables:
        got.update(zip(*_id_columns(case, table), strict=True))
    if got != want.rows:
        missing, extra = want.rows - got, got - want.rows
        told = f"missing {_some(missing)}\nextra {_some(extra)}"
        kind = "missing and extra" if missing and extra else "missing" if missing else "extra"
        return Outcome("wrong", f"{kind} rows", told)
    return _compare_payload(case, tables)


def as_arrow(result: Any) -> pa.Table:
    """A result of any kind in Arrow."""
    if isinstance(result, pa.RecordBatch):
        return pa.Table.from_batches([result])
    if isinstance(result, pa.Table):
        return result
    if hasattr(result, "collect"):
        result = result.collect()
    if hasattr(result, "to_arrow"):
        return result.to_arrow()
    return pa.Table.from_pandas(result, preserve_index=False)


def _id_names(case: Case) -> list[str]:
    if case.call == "self_join":
        return ["lid", "lid" + case.suffix]
    if case.chain:
        return [table.id for table in case.tables.values()]
    ids = [table.id for table in case.tables.values()]
    return ids[:1] if case.how in ("semi", "anti") else ids


def _id_columns(case: Case, table: pa.Table) -> list[list[int | None]]:
    # In pandas a column of integers that has NULLs is one of floats.
    columns = (table.column(name).to_pylist() for name in _id_names(case))
    return [[None if v is None or v != v else int(v) for v in column] for column in columns]


def _some(rows: Counter[Ids]) -> str:
    listed = sorted(rows.items(), key=str)[:6]
    more = f" and {len(rows) - 6} more" if len(rows) > 6 else ""
    return f"{', '.join(f'{ids} x{n}' if n > 1 else f'{ids}' for ids, n in listed)}{more}"


def _compare_payload(case: Case, tables: list[pa.Table]) -> Outcome:
    """The other columns are those of the rows that the ids name."""
    if case.call in ("sql", "chain"):
        return Outcome("right")
    if sum(table.num_rows for table in tables) > PAYLOAD_ROWS:
        return Outcome("right")
    sides = [case.left] if case.how in ("semi", "anti") else list(case.tables.values())
    for table in tables:
        ids = _id_columns(case, table)
        names = [column.name for side in sides for column in side.columns]
        if table.num_columns != len(names):
            return Outcome("wrong", "columns", f"{table.schema.names} for {names}")
        at = 0
        for side, rows in zip(sides, ids, strict=True):
            for column in side.columns:
                got = from_array(table.column(at))
                at += 1
                want = [None if row is None else column.values[row] for row in rows]
                if any("pandas" in given for given in case.inputs.values()):
                    # What pandas holds as NaN is NULL, in what it gives and in what it is given.
                    got, want = ([None if _is_nan(v) else v for v in both] for both in (got, want))
                    # And its integers are floats where one of them is NULL.
                    if any(isinstance(v, float) for v in got) and None in column.values:
                        want = [float(v) if isinstance(v, int) else v for v in want]
                if list(map(repr, got)) != list(map(repr, want)):
                    return Outcome(
                        "wrong", "values of a column", f"{column.name}: {got} for {want}"
                    )
    return Outcome("right")


def _compare_groups(case: Case, table: pa.Table, want: dict[Any, list[Any]]) -> Outcome:
    pandas = any("pandas" in given for given in case.inputs.values())
    columns = [from_array(column) for column in table.columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    count = len(case.groups)
    if any(given == "pandas" for given in case.inputs.values()):
        return Outcome("right")
    # What pandas holds as NaN is NULL, so two groups may look the same in what it is given.
    got = _by_group(((row[:count], row[count:]) for row in rows), pandas)
    right = _by_group(want.items(), pandas)
    if not pandas and len(got) != len(rows):
        return Outcome("wrong", "a group twice", f"{rows}")
    if got.keys() != right.keys():
        missing, extra = right.keys() - got.keys(), got.keys() - right.keys()
        return Outcome("wrong", "groups", f"missing {missing}\nextra {extra}")
    for key, totals in right.items():
        faults = [
            _first_fault(case, found, totals, pandas) for found in permutations(got[key])
        ]  # of one, or of two that look the same
        if all(faults):
            return Outcome("wrong", faults[0].split("(")[0], f"group {key}: {faults[0]}")
    return Outcome("right")


def _by_group(rows: Iterable[tuple[Any, list[Any]]], pandas: bool) -> dict[Any, list[list[Any]]]:
    """The totals of all groups of a key; in pandas NaN and NULL are one key."""
    found: dict[Any, list[list[Any]]] = {}
    for key, totals in rows:
        plain = tuple(
            None if pandas and naive.group_key(v) == "NaN" else naive.group_key(v) for v in key
        )
        found.setdefault(plain, []).append(totals)
    return found


def _first_fault(case: Case, got: Sequence[list[Any]], want: list[list[Any]], pandas: bool) -> str:
    """The first total that is not right; empty if all are."""
    if len(got) != len(want):
        return f"{len(got)} groups, not {len(want)}"
    for mine, right in zip(got, want, strict=True):
        for agg, value, wanted in zip(case.aggs, mine, right, strict=True):
            if value is None and pandas and _is_nan(wanted):
                continue  # what pandas holds as NaN is NULL in Arrow
            if not _fits(value, wanted):
                return f"aggregate {agg.function} ({agg.sql()} is {value!r}, not {wanted!r})"
    return ""


def _is_nan(value: Any) -> bool:
    number = value.value if isinstance(value, Near) else value
    return isinstance(number, float) and math.isnan(number)


def _fits(got: Any, want: Any) -> bool:
    if isinstance(want, Near):
        return want.fits(got)
    if want is FAILED:
        return True
    if isinstance(want, float) and isinstance(got, float):
        return got == want or (math.isnan(got) and math.isnan(want))
    return bool(got == want)
