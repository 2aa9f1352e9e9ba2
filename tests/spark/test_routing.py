"""Routings on Spark: rows of several input files a micro-batch, sent where they can match."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import naive
import thetajoin as tj
from spark.harness import LEFT, RIGHT, Streams, expected, random_batches
from thetajoin.errors import OptionError

pytestmark = pytest.mark.spark

BAND, BANDED = "ABS(l.a - r.b) <= 2", naive.band("a", "b", "<=", 2)
OPEN, OPENED = "l.a < r.b AND l.c >= r.d", naive.conj(("a", "<", "b"), ("c", ">=", "d"))
KEYED, EQUAL = "l.a = r.b AND l.c >= r.d", naive.conj(("a", "=", "b"), ("c", ">=", "d"))


def both(streams: Streams) -> list[Any]:
    """Both streams, two files a micro-batch: the packing stage has several tasks."""
    sides = []
    for name in "lr":
        schema = streams.spark.read.parquet(str(streams.folder / name)).schema
        source = streams.spark.readStream.schema(schema).option("maxFilesPerTrigger", 2)
        sides.append(source.parquet(str(streams.folder / name)))
    return sides


def samples(batches: list[naive.Push]) -> list[pa.Table]:
    rows = (
        [row for batch in batches for row in batch.left],
        [row for batch in batches for row in batch.right],
    )
    return [pa.Table.from_pylist(r, s) for r, s in zip(rows, (LEFT, RIGHT), strict=True)]


def test_every_routing_gives_every_pair_once(streams: Streams) -> None:
    batches = random_batches(5, batches=6, rows=12)
    streams.push(*batches)
    sample = samples(batches[:2])
    asked = {
        "cells": (BAND, BANDED, {"units": 5}),
        "matrix": (OPEN, OPENED, {"units": 12}),
        "ranges": (OPEN, OPENED, {"routing": tj.routing(*sample, OPEN, units=6)}),
        "contrand": (KEYED, EQUAL, {"routing": tj.routing(*sample, KEYED, units=30)}),
        "broadcast": (OPEN, OPENED, {"units": 3}),
    }
    started = {}
    for kind, (on, pred, options) in asked.items():
        plan = tj.explain(*both(streams), on, window=tj.FullHistory(), **options)
        assert f"routing: {kind}" in str(plan)
        df = tj.join(*both(streams), on, window=tj.FullHistory(), **options)
        started[kind] = streams.start(df), pred
    for kind, (query, pred) in started.items():
        run = streams.wait(query)
        assert run.ids == expected(batches, pred)[0], kind
        assert len(run.progress[0].observedMetrics) == 1
        received = sum(unit["received"] for unit in run.units[0])
        given = sum(len(b.left) + len(b.right) for b in batches[:2])
        assert received >= given, "every row has a unit"


def test_a_routing_changes_at_a_restart(streams: Streams) -> None:
    """What was stored stays where it is; a routing that does not know where is refused."""
    batches = random_batches(6, batches=6, rows=12)
    first = tj.routing(*samples(batches[:2]), OPEN, units=4)
    second = tj.routing(*samples(batches[4:]), OPEN, units=4, before=first)
    assert tj.Routing.from_json(second.to_json()) == second
    streams.push(*batches[:3])
    join = {"window": tj.FullHistory()}
    before = streams.resume(tj.join(*both(streams), OPEN, routing=first, **join), "c").ids
    streams.push(*batches[3:])
    other = tj.routing(*samples(batches[4:]), OPEN, units=4)
    with pytest.raises(Exception, match=r"pass routing=the tj\.routing"):
        streams.resume(tj.join(*both(streams), OPEN, routing=other, **join), "c")
    after = streams.resume(tj.join(*both(streams), OPEN, routing=second, **join), "c").ids
    assert before + after == expected(batches, OPENED)[0]


def test_a_routing_that_does_not_suit_is_refused(streams: Streams) -> None:
    batches = random_batches(7, batches=4, rows=12)
    streams.push(*batches)
    sample = samples(batches)
    plan = tj.routing(*sample, OPEN, units=4)
    for on, options, why in (
        (BAND, {"routing": plan}, "another condition"),
        (OPEN, {"routing": plan, "units": 5}, "pass units=4"),
        (OPEN, {"routing": plan, "how": "semi"}, "how='semi'"),
        (OPEN, {"routing": "hash"}, "no equality"),
        (OPEN, {"routing": "ranges"}, "tj.routing"),
        (OPEN, {"units": 513}, "from 1 to 512"),
    ):
        with pytest.raises(OptionError, match=why):
            tj.join(*both(streams), on, window=tj.FullHistory(), **options)
    with pytest.raises(tj.ThetaJoinError, match="'b'"):
        tj.routing(sample[0], sample[1].drop_columns("b"), OPEN, units=4)
    with pytest.raises(tj.ThetaJoinError, match="no rows"):
        tj.routing(sample[0].slice(0, 0), sample[1], OPEN, units=4)
