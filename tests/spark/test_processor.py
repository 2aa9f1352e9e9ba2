"""What is sent to Spark as a streaming join's operator."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
from pyspark import cloudpickle

import thetajoin as tj
from spark.test_unit import make_spec
from thetajoin.spark.processor import UnitProcessor
from thetajoin.spark.unit import JoinUnit

HEAVY = ("numba", "pyarrow", "pandas", "sqlglot", "thetajoin.spark.unit", "thetajoin.engine")
ASK = f"""
import pickle, sys
processor = pickle.loads(bytes.fromhex(sys.stdin.read()))

class Handle:
    def getValueState(self, name, schema):
        print(name, schema)
    def getMapState(self, name, key, value):
        print(name, key, value)

processor.init(Handle())
processor.close()
print([name for name in {HEAVY!r} if name in sys.modules])
"""


def test_asking_for_its_state_loads_nothing() -> None:
    """Spark asks in a process of its own, for which the first micro-batch waits."""
    packed = cloudpickle.dumps(UnitProcessor(JoinUnit(make_spec(tj.FullHistory()))))
    told = subprocess.run(
        [sys.executable, "-c", ASK], input=packed.hex(), capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines() == [
        "description json string",
        "rows id string blob binary",
        "marks l binary, r binary",
        "[]",
    ]


def test_a_unit_is_opened_once_with_the_task_s_states(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def step(self: JoinUnit, unit: int, blobs: Any, timers: Any) -> Any:
        seen.append((self._handle, self._description, self._rows, self._marks, unit, timers))
        yield from ()

    monkeypatch.setattr(JoinUnit, "_step", step)
    closed: list[bool] = []
    monkeypatch.setattr(JoinUnit, "close", lambda self: closed.append(True))
    handle = SimpleNamespace(
        getValueState=lambda name, schema: name, getMapState=lambda name, key, value: name
    )
    processor = UnitProcessor(JoinUnit(make_spec(tj.FullHistory())))
    processor.init(handle)
    from thetajoin.spark.unit_keys import UNIT_KEYS

    assert list(processor.handleInputRows((UNIT_KEYS[1],), iter([]), "t")) == []
    assert list(processor.handleExpiredTimer((UNIT_KEYS[0],), "u", None)) == []
    processor.close()
    states = (handle, "description", "rows", "marks")
    assert seen == [(*states, 1, "t"), (*states, 0, "u")]
    assert closed == [True]
