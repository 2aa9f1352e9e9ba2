"""What a user sees of a call beside its result: errors, a long call, objects in a console."""

from __future__ import annotations

import io
import subprocess
import sys
import time
import traceback

import pandas as pd
import pyarrow as pa
import pytest

import thetajoin as tj
from strategies import refused
from thetajoin import edge
from thetajoin.predicate import evaluate

A = pa.table({"x": [1, 2], "s": ["1", "x"]})
ON = "l.x < r.x"
MISTAKES = [
    lambda: tj.join(A, A, "l.q < r.x"),
    lambda: tj.join(A, A, "CAST(l.s AS DOUBLE) < r.x"),
    lambda: tj.join(A, "nowhere.csv", ON),
    lambda: tj.join(A, A, ON, thread=1),
    lambda: tj.join_batches(A, A, 5),
    lambda: tj.self_join(A, "l.x <"),
    lambda: tj.join_agg(A, A, ON, aggs={"n": "median(l.x)"}),
    lambda: tj.self_join_agg(A, ON, aggs={"n": "sum(l.s)"}),
    lambda: tj.nearest(A, A, key="q"),
    lambda: tj.explain(A, A, "l.q < r.x"),
    lambda: tj.join_many({"a": A, "b": A}, "a.x < b.q"),
    lambda: tj.sql("SELECT * FROM a JOIN b ON a.x < b.q", a=A, b=A),
    lambda: tj.StreamJoin(ON),
    lambda: tj.StreamJoin("l.q < r.x", window=tj.FullHistory()).push(A, A),
    lambda: tj.StreamJoin.restore(b"no snapshot"),
]


@pytest.mark.parametrize("call", MISTAKES)
def test_a_traceback_shows_little_but_the_users_lines(call, monkeypatch):
    monkeypatch.delenv(edge.TRACEBACK, raising=False)
    with pytest.raises(tj.ThetaJoinError) as found:
        call()
    ours = [f for f in traceback.extract_tb(found.tb) if "src/thetajoin" in f.filename]
    assert len(ours) <= 2
    assert found.value.__cause__ is None
    assert found.value.__suppress_context__
    monkeypatch.setenv(edge.TRACEBACK, "1")
    with pytest.raises(tj.ThetaJoinError) as whole:
        call()
    if "unknown option" not in str(found.value):
        assert len(traceback.extract_tb(whole.tb)) > len(traceback.extract_tb(found.tb))


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: tj.join(A, A, ON, hwo="left"), "how"),
        (lambda: tj.join(A, A, ON, windw=tj.FullHistory()), "window"),
        (lambda: tj.join(A, A, ON, thread=2), "threads"),
        (lambda: tj.nearest(A, A, key="x", tolerence=3), "tolerance"),
        (lambda: tj.join_agg(A, A, ON, groupby="l.x", aggs={"n": "count(*)"}), "group_by"),
        (lambda: tj.self_join(A, ON, sufix="_2"), "suffix"),
        (lambda: tj.StreamJoin(ON, window=tj.FullHistory(), sufix="_2"), "suffix"),
        (lambda: tj.explain(A, A, ON, indikator="found"), "indicator"),
    ],
)
def test_a_mistyped_argument_is_named(call, meant):
    refused(call, f"did you mean {meant!r}?")


def test_only_arguments_of_the_function_are_suggested():
    with pytest.raises(tj.ThetaJoinError, match=r"'tolerance': there are: threads, "):
        tj.join(A, A, ON, tolerance=3)


def test_a_value_that_cannot_be_cast_is_told_with_its_column_and_side():
    for on, part in (
        ("CAST(l.s AS DOUBLE) < r.x", "CAST(l.s AS DOUBLE)"),
        ("l.x < r.s", "CAST(r.s AS BIGINT)"),
        ("10 / (l.x - 1) < r.x", "l.x - 1"),
    ):
        refused(lambda on=on: tj.join(A, A, on), part)


def test_aggregates_that_exist_elsewhere_are_answered_with_those_there_are():
    for text in ("median(r.x)", "stddev(r.x)", "mode(r.x)"):
        call = lambda text=text: tj.join_agg(A, A, ON, aggs={"m": text})  # noqa: E731
        refused(call, "there are: count, sum, avg, min, max")


def test_integers_that_arrow_has_no_type_for_name_the_column():
    wide = pd.DataFrame({"a": [1, 2], "big": [1, 2**70]})
    refused(lambda: tj.join(A, wide, "l.x < r.a"), "column 'big' of the right input", "64 bits")


@pytest.mark.parametrize(
    "join",
    [
        lambda: tj.StreamJoin(ON, window=tj.TimeWindow(5, time="t")),
        lambda: tj.StreamJoin(ON, window=tj.CountWindow(5), order_by=("t", "x")),
        lambda: tj.StreamJoin.nearest(key=("t", "x"), window=tj.TimeWindow(5, time=("t", "x"))),
    ],
)
def test_a_push_without_its_time_fails_at_once_and_changes_nothing(join):
    join = join()
    refused(lambda: join.push(left=A), "'t' is not in the left input; it has x, s")
    left = pa.table({"x": [1], "t": [1]})
    join.push(left=left)
    assert join.stats.left_rows == 1


def test_objects_in_a_console_and_a_notebook():
    plan = tj.explain(A, A, ON)
    totals = tj.explain(A, A, ON, aggs={"n": "count(*)"})
    assert repr(plan) == str(plan)
    assert repr(totals) == str(totals)
    assert plan._repr_html_().startswith("<pre>inner join on l.x &lt; r.x\n")
    unread = str(plan.without_rows())
    assert "rows:   not counted" in unread
    assert "pairs" not in unread
    join = tj.StreamJoin(ON, window=tj.FullHistory())
    join.push(A, A)
    assert repr(join) == (
        "<StreamJoin 'l.x < r.x', inner, FullHistory(): 2 left and 2 right rows held, pairs: 1>"
    )
    near = tj.StreamJoin.nearest(key="t", window=tj.TimeWindow(5, time="t"))
    assert repr(near).startswith(
        "<StreamJoin nearest on t and t, TimeWindow(before=5, time='t'): 0"
    )


def test_a_name_that_there_is_not():
    script = "import thetajoin as tj\ntj.joinn"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "Did you mean: 'join'?" in ended.stderr


def test_names():
    assert dir(tj) == sorted(tj.__all__)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def slow(monkeypatch):
    """A join that takes a while, and a call that shows it soon."""
    monkeypatch.setattr(edge, "AFTER_S", 0.02)
    monkeypatch.setattr(edge, "EVERY_S", 0.02)
    monkeypatch.setattr(edge.Shown, "allowed", True)
    begin = evaluate.evaluate if hasattr(evaluate, "evaluate") else evaluate

    def wait(*args, **more):
        time.sleep(0.1)
        return begin(*args, **more)

    monkeypatch.setattr("thetajoin.engine.rows.evaluate", wait)


def test_a_long_join_shows_that_it_goes_on(slow, monkeypatch):
    terminal, pipe = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    want = tj.join(A, A, ON)
    assert "Ctrl-C stops it" in terminal.getvalue()
    assert terminal.getvalue().endswith(" \r")
    monkeypatch.setattr(sys, "stderr", pipe)
    assert tj.join(A, A, ON) == want
    assert pipe.getvalue() == ""
    assert tj.join(A, A, ON, progress=True) == want
    assert "Ctrl-C stops it" in pipe.getvalue()
    quiet = Terminal()
    monkeypatch.setattr(sys, "stderr", quiet)
    assert tj.join(A, A, ON, progress=False) == want
    assert quiet.getvalue() == ""


def test_an_input_whose_class_has_no_module():
    scope = {"given": A.__arrow_c_stream__}
    exec("made = type('Bare', (), {'__arrow_c_stream__': given})()", scope)
    assert not hasattr(type(scope["made"]), "__module__")
    assert tj.join(scope["made"], A, ON).num_rows == 1


def test_a_table_may_be_called_progress():
    query = "SELECT p.x FROM progress p JOIN a ON p.x < a.x"
    assert tj.sql(query, progress=A, a=A).num_rows == 1


def test_ctrl_c_shows_little_but_the_users_lines():
    script = (
        "import pyarrow as pa, thetajoin as tj, thetajoin.engine.rows as rows\n"
        "def stop(*_, **__): raise KeyboardInterrupt\n"
        "rows.evaluate = stop\n"
        "a = pa.table({'x': [1]})\n"
        "tj.join(a, a, 'l.x < r.x')\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode != 0
    assert ended.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert ended.stderr.count("src/thetajoin") == 1
