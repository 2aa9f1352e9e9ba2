"""The Prefap paper's experiments (Figures 5 to 15, Tables 3, 4): its partitionings and ours.

Every partitioning compares each pair of elements it does not exclude, as in the paper; ours hands
cells to the engine, whose sorted search touches only pairs that match. Loads are those of four
processes, as on the paper's machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Report
from benchmarks.papers.measures import Measures, balance, count_results, measure, spread
from benchmarks.papers.streams import Stream, normal, prices, uniform, wind, zipf
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, SIDES, Side
from thetajoin.engine.rows import make_batch
from thetajoin.engine.spec import JoinSpec
from thetajoin.engine.tables import HeldJoin
from thetajoin.papers.partitionings import NAMED, Partitioning, find_partitioning, partition
from thetajoin.planner.cells import cell_copies, plan_cells, sample_matches
from thetajoin.planner.zones import sights_of, summarise

PROCESSES = 4
RUNS = 30
TARGETS = {
    "prefap_over_optimal": "below ftj",
    "ftj_over_optimal": "",
    "default_over_optimal": "<= 1.01",
    "balance_in": "<= 1.2",
    "balance_out": "<= 1.2",
    "prefap_saves_least": "> 0",
    "prefap_saves_most": "",
}
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """One of the paper's two-way joins."""

    name: str
    left: Callable[[int, int], Stream]
    op: str
    right: Callable[[int, int], Stream]
    size: int = 1000

    def streams(self, seed: int = 0, size: int | None = None) -> tuple[Stream, Stream]:
        """Both streams; those of real data are the same for every seed."""
        rows = self.size if size is None else size
        return self.left(rows, 2 * seed + 1), self.right(rows, 2 * seed + 2)


def _share(stream: Stream, size: int, seed: int) -> Stream:
    """Nine in ten elements of a real stream, others for each run, so that runs differ."""
    kept = np.random.default_rng(seed).permutation(len(stream))[: max(1, len(stream) * 9 // 10)]
    return stream[:size] if seed <= 2 else stream[np.sort(kept)][:size]


TWO_YEARS = ("2011-03-01", "2013-03-01")
CASES = {
    "uniform": Case(
        "Figure 5: uniform [20, 50] <= uniform [10, 40]",
        lambda n, s: uniform(20, 50, n, s),
        "<=",
        lambda n, s: uniform(10, 40, n, s),
    ),
    "zipf": Case(
        "Figure 6: Zipf 1.2 <= Zipf 1.3",
        lambda n, s: zipf(1.2, n, s),
        "<=",
        lambda n, s: zipf(1.3, n, s),
    ),
    "wind": Case(
        "Figure 7: wind speed in June >= in October",
        lambda n, s: _share(wind(6, 3000), n, s),
        ">=",
        lambda n, s: _share(wind(10, 3000), n, s),
    ),
    "prices": Case(
        "Figure 8: AAPL <= GOOG, two years of daily prices",
        lambda n, s: _share(prices("AAPL", *TWO_YEARS), n, s),
        "<=",
        lambda n, s: _share(prices("GOOG", *TWO_YEARS), n, s),
    ),
    "normal": Case(
        "Figure 12: normal(1.2, 1) > normal(1, 1)",
        lambda n, s: normal(1.2, 1, n, s),
        ">",
        lambda n, s: normal(1, 1, n, s),
    ),
}
PARTITIONS = (3, 5, 8, 10)
WINDOWS = (1000, 2000, 5000, 10_000)


def join_pairs(left: Stream, right: Stream, op: str, how: Partitioning) -> tuple[int, float]:
    """The paper's join itself, all Cartesian products compared: its result's size, and seconds."""
    start = time.perf_counter()
    made = partition(left, right, op, how)
    compare = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}[op]
    sides = [
        [keys[made_side.of == number] for number in range(len(made_side.low))]
        for keys, made_side in ((left, made.left), (right, made.right))
    ]
    found = 0
    for i, j in zip(*np.nonzero(made.pairs), strict=True):
        found += int(np.count_nonzero(compare(sides[0][i][:, None], sides[1][j][None, :])))
    return found, time.perf_counter() - start


def default(left: Stream, right: Stream, op: str, p: int = 10) -> tuple[Measures, float]:
    """Our own partitioning of the same streams into about `p` cells a process, and seconds."""
    start = time.perf_counter()
    tables: dict[Side, pa.RecordBatch] = {
        "l": pa.record_batch({"x": left}),
        "r": pa.record_batch({"x": right}),
    }
    spec = JoinSpec(f"l.x {op} r.x", options=_ONE)
    compiled = CompiledJoin(spec, tables["l"].schema, tables["r"].schema)
    sights = sights_of(compiled)
    zones = {
        side: summarise(sights, side, make_batch(tables[side], side, compiled.parts, []))
        for side in SIDES
    }
    plans = [
        plan_cells(
            sights,
            held,
            zones,
            _exact(compiled, held, tables),
            cores=PROCESSES,
            preserved=False,
            most_held=1 << 22,
            tasks=(p * PROCESSES,),
        )
        for held in SIDES
    ]
    plan = min(plans, key=lambda plan: plan.makespan)
    hashes = {
        side: np.random.default_rng(5).integers(0, 1 << 62, len(tables[side])).astype(np.uint64)
        for side in SIDES
    }
    held, other = plan.held, OTHER[plan.held]
    inputs, outputs = np.zeros((2, plan.cells), np.int64)
    sent: dict[int, Any] = {}
    for cell, _, rows in cell_copies(compiled, plan, tables[held], held, hashes[held]).by_unit():
        inputs[cell] += len(rows)
        sent[cell] = HeldJoin(compiled, held, tables[held].take(pa.array(rows)))
    for cell, _, rows in cell_copies(compiled, plan, tables[other], other, hashes[other]).by_unit():
        inputs[cell] += len(rows)
        if cell in sent:
            for batch in sent[cell].run(tables[other].take(pa.array(rows))):
                outputs[cell] += batch.num_rows
    seconds = time.perf_counter() - start
    # One comparison: the engine copies ranges of sorted rows and compares no pair that fails.
    loads = spread(inputs, outputs, PROCESSES)
    found = int(outputs.sum())
    results = count_results(left, right, op)
    return Measures(found, results, balance(loads[0]), balance(loads[1])), seconds


_ONE = {"threads": 1}


def _exact(compiled: CompiledJoin, held: Side, tables: dict[Side, pa.RecordBatch]) -> Any:
    """Each held element's matches: streams this small need no sample."""
    where, counts = sample_matches(compiled, held, tables)
    return where, counts.astype(np.float64)


def _row(measures: Measures, seconds: float) -> dict[str, float]:
    return {
        "cartesian_products": measures.cartesian_products,
        "results": measures.results,
        "over_optimal": measures.over_optimal,
        "balance_in": measures.balance_in,
        "balance_out": measures.balance_out,
        "ms": seconds * 1000,
    }


def compare(left: Stream, right: Stream, op: str, p: int = 10) -> dict[str, dict[str, float]]:
    """All partitionings on the same streams."""
    rows = {}
    expected = count_results(left, right, op)
    for name in NAMED:
        how = find_partitioning(name, p)
        measures = measure(left, right, op, partition(left, right, op, how), PROCESSES)
        found, seconds = join_pairs(left, right, op, how)
        if found != expected:
            raise RuntimeError(f"{name} found {found} pairs, not {expected}")
        rows[name] = _row(measures, seconds)
    measures, seconds = default(left, right, op, p)
    if measures.cartesian_products != expected:
        raise RuntimeError(f"default found {measures.cartesian_products} pairs, not {expected}")
    rows["default"] = _row(measures, seconds)
    return rows


ABLATION = {
    "full": {},
    "without pre-filter": {"pre_filter": False},
    "without amalgamation": {"amalgamate": False},
    "without either": {"pre_filter": False, "amalgamate": False},
}


def ablation(left: Stream, right: Stream, op: str) -> dict[str, Any]:
    """Table 3: Prefap with steps left out."""
    rows: dict[str, Any] = {"results": count_results(left, right, op)}
    for name, switches in ABLATION.items():
        made = partition(left, right, op, find_partitioning("prefap", **switches))
        rows[name] = made.cartesian_products
    return rows


@dataclass(frozen=True)
class Chain:
    """One of the paper's joins of three streams, ``R op S op T``."""

    name: str
    streams: Callable[[int], tuple[Stream, Stream, Stream]]
    ops: tuple[str, str]


_YEARS, _BEFORE = ("2010-03-01", "2013-03-01"), ("2007-03-01", "2010-03-01")


def _three_prices(seed: int) -> tuple[Stream, Stream, Stream]:
    """Those of the paper's own length; nine in ten days of them, others for each seed above 0."""
    whole = prices("AAPL", *_YEARS), prices("GOOG", *_YEARS), prices("GOOG", *_BEFORE)
    first, second, third = (
        _share(stream, len(stream), 3 * seed + at) for at, stream in enumerate(whole)
    )
    return first, second, third


CHAINS = {
    "uniform": Chain(
        "Figure 9: uniform R < S <= T",
        lambda s: (
            uniform(20, 50, 1000, 3 * s + 1),
            uniform(10, 40, 1000, 3 * s + 2),
            uniform(0, 30, 1000, 3 * s + 3),
        ),
        ("<", "<="),
    ),
    "prices": Chain("Figure 10: prices R >= S < T", _three_prices, (">=", "<")),
}


def three_way(
    streams: tuple[Stream, Stream, Stream], ops: tuple[str, str], how: Partitioning | None
) -> dict[str, float]:
    """Two streams first, then their result and the third; None for our own partitioning."""
    middle = np.repeat(streams[1], _matches(streams[0], streams[1], ops[0]))
    steps = (streams[0], streams[1], ops[0]), (middle, streams[2], ops[1])
    products, milliseconds = 0, 0.0
    for left, right, op in steps:
        expected = count_results(left, right, op)
        if how is None:
            measures, seconds = default(left, right, op)
            found = compared = measures.cartesian_products
        else:
            compared = partition(left, right, op, how).cartesian_products
            found, seconds = join_pairs(left, right, op, how)
        if found != expected:
            raise RuntimeError(f"a join of three found {found} pairs, not {expected}")
        products += compared
        milliseconds += seconds * 1000
    return {"cartesian_products": products, "results": expected, "ms": milliseconds}


def _matches(left: Stream, right: Stream, op: str) -> Any:
    """How many elements of the left stream match each of the right."""
    ordered = np.sort(left)
    if op in ("<", "<="):
        return np.searchsorted(ordered, right, "left" if op == "<" else "right")
    return len(ordered) - np.searchsorted(ordered, right, "right" if op == ">" else "left")


def significance(run: Callable[[int, str], dict[str, float]]) -> dict[str, float]:
    """Figure 11: one-sided t-tests over 30 runs that Prefap's measures are below FTJ's."""
    from scipy.stats import ttest_ind

    samples: dict[str, dict[str, list[float]]] = {}
    for number in range(RUNS):
        for name in ("prefap", "ftj"):
            for key, value in run(number + 1, name).items():
                samples.setdefault(key, {}).setdefault(name, []).append(value)
    return {
        key: float(ttest_ind(values["prefap"], values["ftj"], alternative="less").pvalue)
        for key, values in samples.items()
        if key in ("cartesian_products", "ms", "balance_in", "balance_out")
    }


def _two_way_run(case: Case) -> Callable[[int, str], dict[str, float]]:
    def run(seed: int, name: str) -> dict[str, float]:
        left, right = case.streams(seed)
        made = partition(left, right, case.op, find_partitioning(name))
        measures = measure(left, right, case.op, made, PROCESSES)
        return _row(measures, join_pairs(left, right, case.op, find_partitioning(name))[1])

    return run


def _three_way_run(chain: Chain) -> Callable[[int, str], dict[str, float]]:
    return lambda seed, name: three_way(chain.streams(seed), chain.ops, find_partitioning(name))


def run(progress: Progress, scale: float = 1.0) -> Report:
    """All experiments; `scale` shrinks the larger windows for a quick look."""
    report = Report("partitionings", targets=TARGETS)
    compare(*CASES["uniform"].streams(), "<=")  # compiles what there is to compile
    saved = []
    for name, case in CASES.items():
        progress(case.name)
        rows = compare(*case.streams(), case.op)
        report.details[name] = {"title": case.name, "rows": rows}
        saved.append(1 - rows["prefap"]["cartesian_products"] / rows["ftj"]["cartesian_products"])
    progress("three streams (Figures 9 and 10, Table 4)")
    report.details["three-way"] = _three_way_rows()
    progress("ablation (Table 3)")
    left, right = CASES["prices"].streams()
    report.details["ablation"] = ablation(left, right, "<=")
    progress("numbers of partitions (Figures 12 and 13)")
    report.details["partitions"] = {
        name: {p: compare(*CASES[name].streams(), CASES[name].op, p) for p in PARTITIONS}
        for name in ("normal", "wind")
    }
    progress("window sizes (Figures 14 and 15)")
    sizes = [int(size * scale) for size in WINDOWS]
    report.details["windows"] = {
        "uniform": {n: compare(uniform(0, 15, n, 1), uniform(5, 20, n, 2), ">") for n in sizes},
        "prices": {n: compare(*_long_prices(n), ">") for n in (500, 1000, 2000, 3000)},
    }
    progress(f"t-tests over {RUNS} runs (Figure 11)")
    report.details["p-values"] = {
        "Zipf": significance(_two_way_run(CASES["zipf"])),
        "wind speed": significance(_two_way_run(CASES["wind"])),
        "prices, three streams": significance(_three_way_run(CHAINS["prices"])),
    }
    two = report.details["prices"]["rows"]
    report.figures = {
        "prefap_over_optimal": two["prefap"]["over_optimal"],
        "ftj_over_optimal": two["ftj"]["over_optimal"],
        "default_over_optimal": two["default"]["over_optimal"],
        "balance_in": report.details["zipf"]["rows"]["default"]["balance_in"],
        "balance_out": report.details["zipf"]["rows"]["default"]["balance_out"],
        "prefap_saves_least": min(saved),
        "prefap_saves_most": max(saved),
    }
    return report


def _long_prices(size: int) -> tuple[Stream, Stream]:
    ends = ("2000-03-01", "2013-03-01")
    return prices("AAPL", *ends)[-size:], prices("IBM", *ends)[-size:]


def _three_way_rows() -> dict[str, Any]:
    ways: dict[str, Partitioning | None] = {name: find_partitioning(name) for name in NAMED}
    ways |= {
        f"prefap {name}": find_partitioning("prefap", **s) for name, s in ABLATION.items() if s
    }
    ways["default"] = None
    return {
        name: {
            "title": chain.name,
            "rows": {way: three_way(chain.streams(0), chain.ops, how) for way, how in ways.items()},
        }
        for name, chain in CHAINS.items()
    }


def plot(report: Report, folder: Path) -> list[Path]:
    """The figures as images."""
    from benchmarks.papers.partitioning_plots import draw

    return draw(report, folder)
