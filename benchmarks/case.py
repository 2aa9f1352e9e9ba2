"""A join by every engine that is here: what runs, what it gives, and which operator did it.

Peers are called as their users would call them; where one has two ways, both are there. Each gets
its tables beforehand in the form it likes best, and gives the whole result as a table of its own.
Sorting that a way needs is part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.join_data import Tables
from benchmarks.operators import (
    chdb_operators,
    datafusion_operators,
    duckdb_operators,
    polars_operators,
)
from benchmarks.own_process import Pathway, PolarsBio, pathway_python, polars_bio_python
from benchmarks.peers import ChDB, DataFusion, DuckDB, list_installed, pandas_module

Query = Callable[[], Any]
PACKAGES = {"thetajoin": "thetajoin", "DuckDB": "duckdb", "Polars": "polars", "chDB": "chdb"}
PACKAGES |= {"DataFusion": "datafusion", "pandas": "pandas"}
# Operators that look at all pairs of rows, and how many they look at in half a minute or so.
ALL_PAIRS = ("NestedLoopJoinExec", "ConstantJoin")
MOST_PAIRS = 3 * 10**9
# Pathway takes about ten kilobytes for each row.
PATHWAY_ROWS = 300_000


@dataclass
class Case:
    """A join by every engine that is here, and the columns by which their results are compared.

    `results` has what makes a result comparable and is no part of the join, `operators` what tells
    which operator an engine takes, and `left_out` why a peer that is here was not run.
    """

    tables: Tables
    threads: int
    columns: str
    runs: dict[str, Query] = field(default_factory=dict)
    results: dict[str, Query] = field(default_factory=dict)
    operators: dict[str, Callable[[], str]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def duckdb(self, **queries: str) -> None:
        """Queries over tables of DuckDB's own, `l` and `r`; the names are those of the ways."""
        if not list_installed("duckdb"):
            return
        engine = DuckDB(self.threads)
        self._store_tables(engine)
        for name, query in queries.items():
            self.runs[name] = partial(engine.query, query)
            self.operators[name] = partial(_ask, duckdb_operators, partial(engine.plan, query))

    def chdb(self, query: str) -> None:
        """A query over tables in ClickHouse's memory; NULL where an outer join has no match."""
        if not list_installed("chdb"):
            return
        engine = ChDB(self.threads)
        named = query.replace(" l ", " bench.l AS l ").replace(" r ", " bench.r AS r ")
        asked = f"{named} SETTINGS join_use_nulls = 1"
        self.versions["chDB"] = f"{_version('chDB')}, ClickHouse {engine.version()}"
        self._add_planned("chDB", engine, asked, chdb_operators)

    def datafusion(self, query: str) -> None:
        """A query over tables in DataFusion's memory."""
        if list_installed("datafusion"):
            self._add_planned("DataFusion", DataFusion(self.threads), query, datafusion_operators)

    def _add_planned(
        self, who: str, engine: ChDB | DataFusion, query: str, read: Callable[[str], str]
    ) -> None:
        """A query, unless the engine would take all pairs of rows for it and these are too many."""
        self._store_tables(engine)
        told = read(engine.plan(query))
        pairs = self.tables.left.num_rows * self.tables.right.num_rows
        if pairs > MOST_PAIRS and any(operator in told for operator in ALL_PAIRS):
            self.left_out[who] = f"{told} over {pairs:.2g} pairs"
            return
        self.runs[who] = lambda: engine.query(query)
        self.operators[who] = lambda: told

    def polars(self, **ways: Callable[[Any, Any, Any], Any]) -> None:
        """Functions of the module polars and two lazy frames, which give a lazy frame."""
        self._polars("auto", ways)

    def polars_streaming(self, **ways: Callable[[Any, Any, Any], Any]) -> None:
        """The same for results of which much is dropped on the way."""
        self._polars("streaming", ways)

    def _polars(self, engine: str, ways: dict[str, Callable[[Any, Any, Any], Any]]) -> None:
        if not list_installed("polars"):
            return
        import polars

        frames = [polars.DataFrame(table).lazy() for table in self.tables]
        for name, way in ways.items():
            query = partial(way, polars, *frames)
            self.runs[name] = partial(_collect, query, engine)
            self.operators[name] = partial(_ask, polars_operators, partial(_explain, query))

    def pandas(self, way: Callable[[Any, Any, Any], Any], whole: str) -> None:
        """A function of the module pandas and two frames; pandas makes floats of `whole` columns.

        It does so where some rows have no match.
        """
        if not list_installed("pandas"):
            return
        frames = [table.to_pandas() for table in self.tables]
        self.runs["pandas"] = lambda: way(pandas_module(), *frames)
        types = dict.fromkeys(whole.split(), "Int64")
        self.results["pandas"] = lambda: self.runs["pandas"]().astype(types)

    def polars_bio(self, operation: str, tables: Tables, left: str, right: str) -> None:
        """A function of polars-bio, and the columns of chromosome, start and end."""
        if polars_bio_python() is not None:
            run = PolarsBio(operation, tables, left, right, self.threads)
            self._add_apart("polars-bio", run)

    def pathway(self, operation: str, left: str, right: str, columns: str, **given: Any) -> None:
        """A temporal join of Pathway over whole tables; see `Pathway`."""
        if pathway_python() is None:
            return
        most = max(table.num_rows for table in self.tables)
        if most > PATHWAY_ROWS:
            self.left_out["Pathway"] = f"{most:,} rows a side are too many for its memory"
            return
        self._add_apart(
            "Pathway",
            Pathway(operation, self.tables, left, right, columns, self.threads, **given),
        )

    def peers(self) -> dict[str, dict[str, str]]:
        """Version of each engine that ran, and its operator where it tells."""
        told: dict[str, dict[str, str]] = {}
        for who in self.runs:
            found = self.versions.get(who) or _version(who)
            told[who] = {"version": found} if found else {}
            if who in self.operators:
                told[who]["operator"] = self.operators[who]()
        return told

    def _add_apart(self, who: str, run: PolarsBio | Pathway) -> None:
        self.runs[who], self.results[who] = run, run.result
        self.versions[who] = run.version
        self.operators[who] = lambda: run.operation

    def _store_tables(self, engine: DuckDB | ChDB | DataFusion) -> None:
        engine.store("l", self.tables.left)
        engine.store("r", self.tables.right)


def _version(who: str) -> str:
    """That of the package; the first word of a way's name is its engine."""
    try:
        return version(PACKAGES[who.split()[0]])
    except (KeyError, PackageNotFoundError):
        return ""


def _ask(read: Callable[[str], str], plan: Callable[[], str]) -> str:
    return read(plan())


def _collect(query: Query, engine: str) -> Any:
    return query().collect(engine=engine)


def _explain(query: Query) -> str:
    return str(query().explain())
