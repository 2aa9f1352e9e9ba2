"""A case as Python: the same text is run, and printed where the case fails."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from fuzz.cases import ONE_TABLE, Case, Step, window_unit
from fuzz.kinds import DAY, Column, Table, stored_values

INPUTS = {
    "arrow": "",
    "chunked": "{0} = pa.concat_tables([{0}.slice(0, 2), {0}.slice(2)])",
    "sliced": "{0} = pa.concat_tables([{0}, {0}]).combine_chunks().slice(len({0}))",
    "batch": "{0} = {0}.to_batches()[0] if len({0}) else {0}",
    "reader": "{0} = {0}.to_reader()",
    "pandas": "{0} = {0}.to_pandas()",
    "pandas_arrow": "{0} = {0}.to_pandas(types_mapper=pd.ArrowDtype)",
    "pandas_nullable": "{0} = {0}.to_pandas(types_mapper={{pa.int64(): pd.Int64Dtype(), "
    "pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype()}}.get)",
    "polars": "{0} = pl.from_arrow({0})",
    "lazy": "{0} = pl.from_arrow({0}).lazy()",
    "dataset": "{0} = ds.dataset({0})",
    "stream": '{0} = type("Stream", (), {{"__arrow_c_stream__": {0}.__arrow_c_stream__}})()',
}
IMPORTS = {
    "ds.": "import pyarrow.dataset as ds",
    "Decimal(": "from decimal import Decimal",
    "datetime(": "from datetime import UTC, datetime, timedelta",
    "timedelta(": "from datetime import UTC, datetime, timedelta",
    "pd.": "import pandas as pd",
    "pl.": "import polars as pl",
    "pa.": "import pyarrow as pa",
    "tj.": "import thetajoin as tj",
}
SQL_HOWS = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}
SQL_HOWS |= {"semi": "LEFT SEMI JOIN", "anti": "LEFT ANTI JOIN"}


def call_code(case: Case) -> str:
    """The statements that turn tables into `result`."""
    sides = ["l"] if case.call in ONE_TABLE else list(case.tables)
    lines = [INPUTS[case.inputs.get(side, "arrow")].format(side) for side in sides]
    return "\n".join([line for line in lines if line] + _CALLS[case.call](case))


def tables_code(case: Case) -> str:
    """The statements that make the tables."""
    sides = ["l"] if case.call in ONE_TABLE else list(case.tables)
    return "\n".join(f"{side} = {table_code(case.tables[side])}" for side in sides)


def script(case: Case, outcome: str) -> str:
    """A script of its own that repeats the call."""
    body = f"{tables_code(case)}\n{call_code(case)}\nprint(result)"
    imports = sorted({line for word, line in IMPORTS.items() if word in body})
    told = "\n".join(f"# {line}" for line in outcome.splitlines())
    return "\n".join([*imports, "", body, told])


def table_code(table: Table) -> str:
    """A table as Python."""
    return "pa.table({" + ", ".join(_column_code(column) for column in table.columns) + "})"


def _column_code(column: Column) -> str:
    values = stored_values(list(column.values), column.type)
    listed = f"[{', '.join(map(_value_code, values))}]"
    return f'"{column.name}": pa.array({listed}, {column.code})'


def _value_code(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return f'Decimal("{value}")' if isinstance(value, Decimal) else ascii(value)


def on_code(case: Case) -> str:
    """The condition as text, as a list of texts, or built."""
    python = case.on.python() if case.form == "python" else None
    if python is not None:
        return python
    if case.form == "list" and case.on.op == "and":
        return f"[{', '.join(ascii(part.sql()) for part in case.on.args)}]"
    return ascii(case.on.sql())


def _arguments(case: Case) -> list[str]:
    found = []
    if case.window is not None:
        found.append(f"window={window_code(case)}")
    if case.order_by:
        found.append('order_by="t"')
    if case.suffix != "_right":
        found.append(f"suffix={case.suffix!a}")
    return found + [f"{name}={value!r}" for name, value in case.options.items()]


def window_code(case: Case) -> str:
    """The window as Python."""
    window = case.window
    assert window is not None
    if window.name == "full":
        return "tj.FullHistory()"
    if window.name == "count":
        return f"tj.CountWindow({window.size}, slide={window.slide})"
    before, after = (_length(case, count) for count in (window.before, window.after))
    if before == after:
        return f'tj.TimeWindow({before}, time="t")'
    return f'tj.TimeWindow(before={before}, after={after}, time=("t", "t"))'


def _length(case: Case, count: int) -> str:
    unit = window_unit(case)
    if unit == 1:
        return str(count)
    if unit == DAY:
        return f'"{count} days"'
    return f'"{count} seconds"' if count % 2 else f"timedelta(seconds={count})"


def _two(name: str) -> Any:
    def code(case: Case) -> list[str]:
        how = [] if case.spelling == "inner" else [f'how="{case.spelling}"']
        arguments = ["l", "r", on_code(case), *how, *_arguments(case)]
        call = f"tj.{name}({', '.join(arguments)})"
        wrapped = {"join_batches": f"list({call})", "explain": f"str({call})"}.get(name, call)
        return [f"result = {wrapped}"]

    return code


def _self_join(case: Case) -> list[str]:
    return [f"result = tj.self_join({', '.join(['l', on_code(case), *_arguments(case)])})"]


def _join_many(case: Case) -> list[str]:
    inputs = "{" + ", ".join(f'"{side}": {side}' for side in case.tables) + "}"
    return [f"result = tj.join_many({', '.join([inputs, on_code(case), *_arguments(case)])})"]


def _join_agg(case: Case) -> list[str]:
    groups = "[" + ", ".join(f'"{group.sql()}"' for group in case.groups) + "]"
    aggs = "{" + ", ".join(f'"a{i}": {agg.sql()!a}' for i, agg in enumerate(case.aggs)) + "}"
    tables = ["l"] if case.call == "self_join_agg" else ["l", "r"]
    arguments = [*tables, on_code(case), f"group_by={groups}", f"aggs={aggs}", *_arguments(case)]
    return [f"result = tj.{case.call}({', '.join(arguments)})"]


def _chain(case: Case) -> list[str]:
    (how, first), (then, second) = case.chain
    source = f"a r {SQL_HOWS[how]} b s ON {first.sql()} {SQL_HOWS[then]} c t ON {second.sql()}"
    where = "" if case.where is None else f" WHERE {case.where.sql()}"
    query = f"SELECT r.rid, s.sid, t.tid FROM {source}{where}"
    return [f"result = tj.sql({query!a}, a=r, b=s, c=t)"]


def _sql(case: Case) -> list[str]:
    alias = {"l": "x", "r": "y"}
    on, how = case.on.sql(alias), case.how
    if case.aggs:
        outputs = [group.sql(alias) + f" AS g{i}" for i, group in enumerate(case.groups)]
        outputs += [f"{agg.sql(alias)} AS a{i}" for i, agg in enumerate(case.aggs)]
    else:
        outputs = ["x.lid"] if how in ("semi", "anti") else ["x.lid", "y.rid"]
    joined = "a x, b y WHERE" if case.form == "list" and how == "inner" else ""
    source = f"{joined} {on}" if joined else f"a x {SQL_HOWS[how]} b y ON {on}"
    groups = ", ".join(group.sql(alias) for group in case.groups)
    by = f" GROUP BY {groups}" if case.groups else ""
    query = f"SELECT {', '.join(outputs)} FROM {source}{_sql_window(case)}{by}"
    if case.limit is not None:
        query += f" ORDER BY {', '.join(outputs)} LIMIT {case.limit}"
    elif case.form == "python" and not case.aggs and case.window is None:
        # The same rows by way of the engine that runs what is around a join.
        query = f"WITH q AS ({query}) SELECT * FROM q"
    return [f"result = tj.sql({query!a}, a=l, b=r)"]


def _sql_window(case: Case) -> str:
    window = case.window
    if window is None or window.name == "full":
        return ""
    if window.name == "count":
        order = " ORDER BY t" if case.order_by else ""
        return f" WINDOW AS (SLIDE INTERVAL '{window.slide}' ON COUNT '{window.size}'{order})"
    unit = {1: "", DAY: " days"}.get(window_unit(case), " seconds")
    return f" WITHIN {window.before}{unit} ON t"


def _stream(case: Case) -> list[str]:
    how = [] if case.spelling == "inner" else [f'how="{case.spelling}"']
    schemas = ["left_schema=l.schema", "right_schema=r.schema"]
    arguments = [on_code(case), *how, *_arguments(case), *schemas]
    lines = [f"join = tj.StreamJoin({', '.join(arguments)})", "result = []"]
    at = (0, 0)
    for step in case.steps:
        lines.append(_step(case, step, at))
        if step.name == "push":
            at = step.left, step.right
    return [*lines, "result.append(join.finish())"]


def _step(case: Case, step: Step, at: tuple[int, int]) -> str:
    if step.name == "restore":
        return "join = tj.StreamJoin.restore(join.snapshot())"
    if step.name == "advance":
        if window_unit(case) == 1:
            return f"join.advance({step.watermark})"
        micros = step.watermark // 1000
        return f"join.advance(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds={micros}))"
    sides = (("left", "l", at[0], step.left), ("right", "r", at[1], step.right))
    given = [f"{s}={name}.slice({a}, {b - a})" for s, name, a, b in sides if b > a]
    return f"result.append(join.push({', '.join(given)}))"


_CALLS: dict[str, Any] = {
    **{name: _two(name) for name in ("join", "join_batches", "explain")},
    "self_join": _self_join,
    "join_many": _join_many,
    "join_agg": _join_agg,
    "self_join_agg": _join_agg,
    "chain": _chain,
    "sql": _sql,
    "stream": _stream,
}
