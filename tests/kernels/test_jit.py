"""Kernels before numba: few rows need none of it, and give the same as compiled ones."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from thetajoin.kernels import jit

pytestmark = pytest.mark.skipif(not jit.COMPILES, reason="nothing is compiled")

FEW = """
import sys
import pyarrow as pa, thetajoin as tj
few = pa.table({"k": [1, 1, 2, None], "x": [1.0, -0.0, float("nan"), 2.0], "s": list("abca")})
calls = {
    "join": lambda: tj.join(few, few, "l.x < r.x AND l.k >= r.k", how="full"),
    "words": lambda: tj.join(few, few, "l.s < r.s"),
    "equal": lambda: tj.join(few, few, "l.k = r.k AND l.x <= r.x", how="left"),
    "band": lambda: tj.join(few, few, "ABS(l.x - r.x) <= 1"),
    "self": lambda: tj.self_join(few, "l.x < r.x"),
    "nearest": lambda: tj.nearest(few, few, key="x", by="k"),
    "pieces": lambda: pa.Table.from_batches(tj.join_batches(few, few, "l.x >= r.x")),
    "query": lambda: tj.sql("SELECT l.s, r.k FROM l JOIN r ON l.x < r.x", l=few, r=few),
}
from thetajoin.kernels import jit
jit._left = 100.0 if sys.argv[1] == "plain" else 0.0
for name, call in calls.items():
    print(name, sorted(map(repr, call().to_pylist())))
print("numba" in sys.modules, file=sys.stderr)
"""


def test_few_rows_are_joined_without_numba_and_alike():
    said = {}
    for way in ("plain", "compiled"):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", FEW, way],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ,
        )
        assert done.returncode == 0, done.stderr
        said[way] = done.stdout
        assert done.stderr.strip() == str(way == "compiled")
    assert said["plain"] == said["compiled"]


AFTER = """
import random, sys
import pyarrow as pa, thetajoin as tj
from thetajoin.kernels import jit
jit._left = 100.0
rng = random.Random(1)
large = pa.table({name: [rng.randrange(10**6) for _ in range(5000)] for name in "ab"})
few = pa.table({"a": [1, 2, 3], "b": [3, 1, 2]})
on = "l.a < r.a AND l.b > r.b AND l.a + 50000 > r.a"
calls = {
    "join": lambda t: tj.join(t, t, on),
    "nearest": lambda t: tj.nearest(t, t, key="a", on="l.b > r.b"),
    "join_agg": lambda t: tj.join_agg(t, t, on, group_by="l.a", aggs={"n": "count(*)"}),
    "push": lambda t: tj.StreamJoin(on, window=tj.FullHistory()).push(t, t),
}
calls[sys.argv[1]](large)
print([sorted(map(repr, call(few).to_pylist())) for call in calls.values()])
"""


def test_few_rows_after_many_give_what_they_give_alone():
    said = set()
    for first in ("join", "nearest", "join_agg", "push"):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", AFTER, first],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ,
        )
        assert done.returncode == 0, done.stderr
        said.add(done.stdout)
    assert len(said) == 1


def test_a_thread_that_runs_kernels_as_python_meets_no_compiled_one(monkeypatch):
    monkeypatch.setattr(jit, "_left", 1.0)
    monkeypatch.setattr(jit, "_loaded", False)
    kernel = make([])
    with jit.few_rows(1):
        kernel.compile()  # as another thread may, in the middle
        assert kernel(1) == "plain"
    assert kernel(1) == "compiled"


def make(calls: list[str]) -> jit.Kernel:
    def plain(x):
        return "plain"

    def compiled(function):
        calls.append("made")
        return lambda x: "compiled"

    return jit.Kernel(plain, compiled)


def test_a_kernel_is_plain_for_few_rows_until_it_has_been_compiled(monkeypatch):
    monkeypatch.setattr(jit, "_left", 1.0)
    monkeypatch.setattr(jit, "_loaded", False)
    made: list[str] = []
    kernel = make(made)
    with jit.few_rows(jit.FEW_ROWS):
        assert kernel(1) == "plain"
    with jit.few_rows(jit.FEW_ROWS + 1):
        assert kernel(1) == "compiled"
    with jit.few_rows(1):
        assert kernel(1) == "compiled"
    assert made == ["made"]


def test_patience_ends(monkeypatch):
    monkeypatch.setattr(jit, "_left", 1e-9)
    monkeypatch.setattr(jit, "_loaded", False)
    with jit.few_rows(1):
        assert make([])(1) == "plain"
        sum(range(100_000))
    with jit.few_rows(1):
        assert make([])(1) == "compiled"


def test_an_error_does_not_leave_kernels_plain(monkeypatch):
    monkeypatch.setattr(jit, "_left", 1.0)
    monkeypatch.setattr(jit, "_loaded", False)
    with pytest.raises(ValueError, match="inside"), jit.few_rows(1):
        raise ValueError("inside")
    assert make([])(1) == "compiled"


@pytest.mark.parametrize("word", [1, 6, 1 << 63, (1 << 64) - 1])
def test_instructions_are_the_same_in_python(word):
    word = np.uint64(word)
    assert jit.trailing_zeros.py_func(word) == (int(word) & -int(word)).bit_length() - 1
    assert jit.population.py_func(word) == bin(int(word)).count("1")
    assert jit.bits_of.py_func(jit.double_of.py_func(np.int64(5))) == 5


@pytest.mark.skipif(not jit.COMPILES, reason="nothing is compiled")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_another_thread_compiles():
    """The child compiles too: locks of the thread that is not there do not keep it waiting."""
    script = """
import os, signal, threading, time
import numpy as np
from numba.core.compiler_lock import global_compiler_lock as compiling
from thetajoin.kernels.search import first_above
from thetajoin.kernels import jit

def compile_for_long():
    with jit._making, compiling:
        begun.set()
        time.sleep(1)

begun = threading.Event()
threading.Thread(target=compile_for_long).start()
begun.wait()
child = os.fork()
if not child:
    signal.alarm(60)
    four = np.arange(4)
    first_above(four, four, four, np.empty(4, np.int64))
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "7"
