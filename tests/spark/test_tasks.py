"""What a task makes of its rows, and what a worker keeps from the garbage collector."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
from thetajoin.spark.tasks import add_offsets

LISTS = pa.list_(pa.int64())
NESTED = {
    "lists": pa.array([None, [[], [1]], [None]], pa.list_(LISTS)),
    "none": pa.array([None, None, []], pa.list_(LISTS)),
    "map": pa.array([[("a", [1])], None, []], pa.map_(pa.string(), LISTS)),
    "struct": pa.array(
        [{"x": [], "y": "a"}, None, {"x": None, "y": None}],
        pa.struct([("x", LISTS), ("y", pa.string())]),
    ),
    "text": pa.array(["a", None, ""]),
}


def test_what_can_be_read_stays_as_it_is() -> None:
    batch = pa.record_batch(NESTED)
    for rows in (batch, batch.slice(1), batch.slice(0, 0)):
        assert add_offsets(rows).equals(rows)
        add_offsets(rows).validate(full=True)


def test_arrays_without_a_value_and_without_offsets() -> None:
    """As Spark 4.0 sends them, also inside others: what is read there is whatever lies there."""
    lies = pa.py_buffer(np.array([-7, 2**30], np.int32).tobytes())
    inner = pa.Array.from_buffers(LISTS, 0, [None, lies], children=[pa.array([], pa.int64())])
    offsets = pa.py_buffer(np.zeros(3, np.int32).tobytes())
    nothing = pa.Array.from_buffers(pa.list_(LISTS), 2, [None, offsets], children=[inner])
    alone = pa.record_batch({"a": inner})
    inside = pa.record_batch(
        {"a": nothing, "b": pa.StructArray.from_arrays([nothing], names=["x"])}
    )
    assert add_offsets(alone).to_pydict() == {"a": []}
    found = add_offsets(inside)
    found.validate(full=True)
    assert found.nbytes < 100
    assert found.to_pydict() == {"a": [[], []], "b": [{"x": []}, {"x": []}]}


SCRIPT = """
import gc, weakref
import thetajoin.spark.tasks as tasks

loaded = [[n] for n in range(3 * tasks.FEW_OBJECTS)]
gc.collect()
assert gc.get_freeze_count() == 0
tasks.set_aside()
set_aside = gc.get_freeze_count()
assert set_aside > len(loaded)
assert len(gc.get_objects()) < tasks.FEW_OBJECTS

tasks.set_aside()  # little is new
assert gc.get_freeze_count() == set_aside


class Ring:
    pass


ring = Ring()
ring.itself, gone = ring, weakref.ref(ring)
del ring
gc.collect()
assert gone() is None, "what comes later is collected as ever"

for _ in range(3):  # a worker that grows with every task
    loaded += [[n] for n in range(2 * tasks.FEW_OBJECTS)]
    tasks.set_aside()
assert gc.get_freeze_count() <= set_aside, "that is done once, and it is left alone after"
"""


def test_what_is_loaded_is_set_aside_once() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
