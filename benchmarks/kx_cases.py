"""Six as-of joins of trades with quotes, as the benchmark of KX has them on a day of New York's.

Trades of fifty symbols, of a thousand that are seldom traded, of one that is seldom traded and of
one that is often, each with the last quote of its symbol; large trades, and those of ten minutes
before the close, with the last quote of their symbol on their exchange. The tables are made here,
in the order of time, with ten quotes for each trade. To pick the rows is part of each query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import thetajoin as tj
from benchmarks.case import Case
from benchmarks.join_data import Tables

TRADES, QUOTES, SYMBOLS, EXCHANGES = 500_000, 5_000_000, 3000, 16
# Microseconds since midnight.
OPEN, CLOSE = (int(hour * 3_600_000_000) for hour in (4, 20))
PRE_CLOSE = tuple(int((16 + minute / 60) * 3_600_000_000) for minute in (20, 30))
# About one in 150 trades has more shares.
LARGE = 5000
COLUMNS = "id symbol exchange ts size quote bid ask"


@cache
def market(scale: float) -> tuple[Tables, tuple[str, ...]]:
    """Trades and quotes, and the symbols from the most traded on."""
    random = np.random.default_rng(91)
    trades, quotes = (max(100, int(rows * scale)) for rows in (TRADES, QUOTES))
    number = max(60, int(SYMBOLS * min(1.0, 10 * scale)))
    weights = np.arange(1, number + 1) ** -0.9
    names = pa.array([f"S{place:04d}" for place in range(number)])
    floors = pa.array([chr(ord("A") + place) for place in range(EXCHANGES)])

    def words(rows: int) -> dict[str, Any]:
        drawn = random.choice(number, rows, p=weights / weights.sum())
        at = random.integers(0, EXCHANGES, rows)
        return {"symbol": names.take(pa.array(drawn)), "exchange": floors.take(pa.array(at))}

    left = {
        "id": np.arange(trades),
        **words(trades),
        "ts": np.sort(random.integers(OPEN, CLOSE, trades)),
        "size": 1 + random.exponential(1000, trades).astype(np.int64),
    }
    # No two quotes are of one instant.
    step = (CLOSE - OPEN) // quotes
    bid = 100 * random.random(quotes)
    right = {
        **words(quotes),
        "ts": OPEN + step * np.arange(quotes) + random.integers(0, step, quotes),
        "quote": np.arange(quotes),
        "bid": bid,
        "ask": bid + random.random(quotes),
    }
    return Tables(pa.table(left), pa.table(right)), tuple(names.to_pylist())


@dataclass(frozen=True)
class Picked:
    """Which trades a query is about: those of some symbols, or of a range of a column."""

    symbols: tuple[str, ...] = ()
    column: str = ""
    low: int = 0
    high: int = 0

    @property
    def by(self) -> tuple[str, ...]:
        """The columns that a trade and its quote share."""
        return ("symbol",) if self.symbols else ("symbol", "exchange")

    def of(self, table: pa.Table) -> pa.Table:
        """The rows of an Arrow table; quotes have all exchanges and times."""
        if self.symbols:
            return table.filter(pc.is_in(table["symbol"], pa.array(self.symbols)))
        if "id" not in table.column_names:
            return table
        column = table[self.column]
        return table.filter(pc.and_(pc.greater(column, self.low), pc.less(column, self.high)))

    def sql(self, table: str) -> str:
        """The same as a query."""
        if self.symbols:
            names = ", ".join(f"'{name}'" for name in self.symbols)
            return f"(SELECT * FROM {table} WHERE symbol IN ({names}))"
        if table == "r":
            return "(SELECT * FROM r WHERE true)"
        return f"(SELECT * FROM l WHERE {self.column} > {self.low} AND {self.column} < {self.high})"

    def polars(self, pl: Any, frame: Any) -> Any:
        """The rows of a frame of Polars."""
        if self.symbols:
            return frame.filter(pl.col("symbol").is_in(list(self.symbols)))
        if "id" not in frame.collect_schema().names():
            return frame
        column = pl.col(self.column)
        return frame.filter(column > self.low, column < self.high)

    def pandas(self, frame: Any) -> Any:
        """The rows of a frame of pandas."""
        if self.symbols:
            return frame[frame["symbol"].isin(self.symbols)]
        if "id" not in frame.columns:
            return frame
        column = frame[self.column]
        return frame[(column > self.low) & (column < self.high)]


def _pick(symbols: tuple[str, ...]) -> dict[str, Picked]:
    seldom = symbols[len(symbols) // 2 :]
    return {
        "fifty": Picked(symbols[:: max(1, len(symbols) // 50)][:50]),
        "thousand_seldom": Picked(seldom[:1000]),
        "one_seldom": Picked(seldom[:1]),
        "one_often": Picked(symbols[:1]),
        "large": Picked(column="size", low=LARGE, high=2**62),
        "before_close": Picked(column="ts", low=PRE_CLOSE[0], high=PRE_CLOSE[1]),
    }


def _last_quotes(name: str, threads: int, scale: float) -> Case:
    tables, symbols = market(scale)
    picked = _pick(symbols)[name]
    by = picked.by
    case = Case(tables, threads, COLUMNS)

    def ours() -> Any:
        trades, quotes = (picked.of(table) for table in tables)
        return tj.nearest(trades, quotes, key="ts", by=list(by), threads=threads)

    case.runs["thetajoin"] = ours
    equal = " AND ".join(f"t.{name} = q.{name}" for name in by)
    given = ", ".join(f"t.{name} AS {name}" for name in ("id", "symbol", "exchange", "ts", "size"))
    query = (
        f"SELECT {given}, q.quote AS quote, q.bid AS bid, q.ask AS ask FROM {picked.sql('l')} AS t "
        f"ASOF LEFT JOIN {picked.sql('r')} AS q ON {equal} AND t.ts >= q.ts"
    )
    case.duckdb(DuckDB=query)
    case.chdb(query)

    def last(pl: Any, trades: Any, quotes: Any) -> Any:
        trades, quotes = picked.polars(pl, trades), picked.polars(pl, quotes)
        found = trades.sort("ts").join_asof(quotes.sort("ts"), on="ts", by=by, coalesce=False)
        return found.select(COLUMNS.split())

    case.polars(Polars=last)
    case.pandas(
        lambda pd, trades, quotes: pd.merge_asof(
            picked.pandas(trades), picked.pandas(quotes), on="ts", by=list(by)
        )[_pandas_columns(by)].rename(columns={"exchange_x": "exchange"}),
        "quote",
    )
    return case


def _pandas_columns(by: tuple[str, ...]) -> list[str]:
    names = COLUMNS.split()
    return [f"{name}_x" if name == "exchange" and name not in by else name for name in names]


KX: dict[str, Callable[[int, float], Case]] = {
    f"kx_{name}": partial(_last_quotes, name) for name in _pick(("S",))
}
