"""What a worker has loaded is kept from the garbage collector."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

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
