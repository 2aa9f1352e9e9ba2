"""The planner's choice: what it depends on, that it may change, and that results do not."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import thetajoin as tj
from thetajoin.papers import auto, costs
from thetajoin.papers.costs import CANDIDATES, Workload, estimate, panjoin_advice

FLAT = {"10000": {"1": 100.0, "1000": 1000.0}, "100000": {"1": 200.0, "1000": 2000.0}}


@pytest.fixture
def flat_costs(monkeypatch: pytest.MonkeyPatch) -> dict:
    table = {name: {"1": dict(FLAT), "2": dict(FLAT)} for name in CANDIDATES}
    monkeypatch.setattr(costs, "table", lambda: table)
    return table


def test_the_shipped_table_has_every_candidate() -> None:
    for name in CANDIDATES:
        for keys in (1, 2):
            small, large = (estimate(name, Workload(b, 10_000, keys)) for b in (1, 10_000))
            assert 0 < small < large


def test_points_are_met_and_lines_go_on(flat_costs: dict) -> None:
    assert estimate("pim_tree", Workload(1, 10_000)) == pytest.approx(100)
    assert estimate("pim_tree", Workload(1000, 100_000)) == pytest.approx(2000)
    assert estimate("pim_tree", Workload(1, 1_000_000)) == pytest.approx(400)
    wide = estimate("pim_tree", Workload(1000, 100_000, 2, reach=0.5))
    assert wide > 2000 + 100_000, "each row that the driving key lets through is tested"
    assert estimate("po_join", Workload(1000, 100_000, 2, reach=0.5)) == pytest.approx(2000)
    many = estimate("pim_tree", Workload(1000, 100_000, 1, reach=0.002))
    assert many > 2000 + 10_000, "each match costs more than with PO-Join"


def test_panjoins_advice() -> None:
    assert panjoin_advice(Workload(100_000, 10**6), 1) == "bi_sort"
    assert panjoin_advice(Workload(100, 10**6), 5000) == "bi_sort"
    assert panjoin_advice(Workload(100, 10**6), 1) == "rap_table"
    assert panjoin_advice(Workload(100, 10**6, growing=True), 1) == "wib_tree"


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_stream_changes_its_structure_and_its_results_stay(
    how: str, monkeypatch: pytest.MonkeyPatch, flat_costs: dict
) -> None:
    """Each look finds another structure the cheapest, so that rows move all the time."""
    monkeypatch.setattr(auto, "FIRST_LOOK", 32)
    monkeypatch.setattr(auto, "LOOKS_APART", 2)
    monkeypatch.setattr(auto, "MOVE_US", 0.0)
    turns = ["pim_tree", "po_join", "bi_sort", "im_tree"]
    looks = iter(turns * 50)

    def order(work: Workload, able: list[str]) -> list[tuple[float, str]]:
        cheap = next(looks)
        return sorted((1.0 if name == cheap else 10.0, name) for name in CANDIDATES)

    monkeypatch.setattr(auto, "rank_structures", order)
    random = np.random.default_rng(5)
    runs = {}
    batches = [
        [pa.table({"a": random.integers(0, 50, n), "id": np.arange(n) + 100 * i}) for _ in "lr"]
        for i, n in enumerate(random.integers(1, 40, 40))
    ]
    for index in ("auto", "po_join"):
        join = tj.StreamJoin("l.a = r.a", how=how, window=tj.CountWindow(60), index=index)
        rows: Counter = Counter()
        kinds = set()
        for left, right in batches:
            for row in join.push(left, right).to_pylist():
                rows[tuple(row.values())] += 1
            kinds |= {store.config.index for store in join._state.stores.values()}
            for store in join._state.stores.values():
                store._check()
        for row in join.finish().to_pylist():
            rows[tuple(row.values())] += 1
        runs[index] = rows
        assert (len(kinds) > 4) == (index == "auto")
    assert runs["auto"] == runs["po_join"]


def test_explain_says_what_why_and_what_else() -> None:
    here = pa.table({"a": np.arange(1000), "b": np.arange(1000)})
    on = "l.a < r.a AND l.b > r.b"
    assert tj.explain(here, here, on) == tj.explain(here, here, on, index="po_join")
    assert "index:  po_join over the right side" in str(tj.explain(here, here, on))
    plan = tj.explain(here, here, on, index="auto")
    assert plan.index == "po_join"
    assert "next best" in str(plan)
    assert "growing" in str(plan)
    assert "PanJoin's advice: wib_tree" in str(plan), "since keys grow"
    asked = tj.explain(here, here, "l.a < r.a", index="pim_tree")
    assert asked.index == "pim_tree"
    assert "as asked" in str(asked)
    words = pa.table({"s": ["x"]}), pa.table({"s": ["y"]})
    alone = tj.explain(*words, "l.s < r.s", index="auto")
    assert "no other serves" in str(alone)
