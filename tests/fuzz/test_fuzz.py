"""The fuzzer: cases are right, cases repeat themselves, planted defects are found and shrunk."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import naive
from campaigns.names import CAMPAIGNS
from fuzz import trials
from fuzz.aggregates import Near
from fuzz.cases import CALLS, HOWS, INDEXES, case
from fuzz.check import check
from fuzz.code import call_code, script, tables_code
from fuzz.draw import Draw, values
from fuzz.kinds import BOOL, INT, LONG, STORED, arrow_type, from_array, kind_of, to_array
from fuzz.meaning import FAILED, Notes, evaluated
from fuzz.nodes import Node, arithmetic, cast, lit, number
from fuzz.shrink import shrunk
from thetajoin.engine import joiner, parts, rows
from thetajoin.errors import OptionError
from thetajoin.index import interval

SEED = 16


def test_cases_are_right():
    tally = trials.trials(SEED, 0, 200)
    assert [failure.script for failure in tally.failures] == []
    assert [failure.script for failure in tally.disagreements] == []
    assert tally.outcomes["right"] > 150
    assert tally.outcomes["garbage refused"] + tally.outcomes["garbage right"] == 20


def test_a_case_depends_on_the_seed_and_its_number_alone():
    texts = [tables_code(case(SEED, n)) + call_code(case(SEED, n)) for n in (7, 3, 7)]
    assert texts[0] == texts[2] != texts[1]
    assert tables_code(case(SEED + 1, 7)) != tables_code(case(SEED, 7))


def test_the_whole_surface_is_drawn():
    drawn = [case(SEED, n) for n in range(2500)]
    assert {c.call for c in drawn} == set(CALLS)
    assert {c.how for c in drawn} == set(HOWS)
    assert {c.options.get("index") for c in drawn} >= set(INDEXES)
    assert {c.window.name for c in drawn if c.window} == {"time", "count", "full"}
    codes = {column.code for c in drawn for t in c.tables.values() for column in t.columns}
    assert codes >= {code for codes in STORED.values() for code in codes}
    ops = Counter(node.op for c in drawn for node in c.on.walk())
    wanted = {
        *naive.OPERATORS,
        "between",
        "abs",
        "or",
        "not",
        "cast",
        "case",
        "in",
        "<=>",
        "coalesce",
    }
    assert set(ops) >= wanted
    steps = Counter(step.name for c in drawn for step in c.steps)
    assert set(steps) == {"push", "advance", "restore"}
    forms = {call_code(c).count("tj.l.") > 0 for c in drawn}
    assert forms == {True, False}


def test_a_script_repeats_the_call():
    drawn = next(c for n in range(99) if (c := case(SEED, n)).call == "join" and c.how == "inner")
    space: dict[str, object] = {}
    exec(script(drawn, "told").replace("print(result)", ""), space)
    assert space["result"] is not None


@pytest.mark.parametrize("code", sorted({code for codes in STORED.values() for code in codes}))
def test_values_come_back_from_arrow(code):
    type_ = arrow_type(code)
    for n in range(20):
        drawn = values(Draw(f"{code}{n}"), kind_of(type_), code, 9)
        if code == "pa.date64()":
            drawn = [None if v is None else v // (86400 * 10**9) * 86400 * 10**9 for v in drawn]
        assert list(map(repr, from_array(to_array(drawn, type_)))) == list(map(repr, drawn))


# --- the meaning of expressions ------------------------------------------------------------------


def value(node: Node) -> tuple[object, bool]:
    notes = Notes()
    return evaluated(node, {}, {}, notes), notes.may_fail


@pytest.mark.parametrize(
    ("node", "want", "fails"),
    [
        (arithmetic("+", number(2**31 - 1), number(1)), 2**31, True),
        (arithmetic("/", number(7), number(2)), 3.5, False),
        (arithmetic("/", number(7), number(0)), FAILED, True),
        (arithmetic("%", number(-7), number(2)), -1, False),
        (arithmetic("div", number(-7), number(2)), -3, False),
        (cast("cast", number(2.9), INT), 2, False),
        (cast("try_cast", number(1e300), LONG), None, False),
        (Node("and", BOOL, (lit(None, BOOL), lit(False, BOOL))), False, False),
        (Node("or", BOOL, (lit(None, BOOL), lit(False, BOOL))), None, False),
        (Node("greatest", LONG, (number(1), lit(None, LONG), number(5))), 5, False),
    ],
)
def test_meaning(node, want, fails):
    assert value(node) == (want, fails)


def test_sums_of_floats_are_right_up_to_rounding():
    assert Near.of([0.1] * 10, 1).fits(sum([0.1] * 10))
    assert not Near.of([0.1] * 10, 1).fits(1.1)
    assert Near.of([float("inf"), 1.0], 1).fits(float("inf"))
    assert Near.of([float("inf"), float("-inf")], 1).fits(float("nan"))


# --- planted defects -----------------------------------------------------------------------------


def found(most: int = 600, likely=lambda drawn: True, first: int = 1) -> tuple[object, object]:
    """The first of the likely cases that is wrong now, shrunk."""
    for number_ in range(first, most):
        if number_ % trials.GARBAGE_EVERY == 0:
            continue
        drawn = case(SEED, number_)
        if drawn.call in ("join", "join_batches", "stream", "self_join") and likely(drawn):
            outcome = check(drawn)
            if outcome.wrong:
                return shrunk(drawn, outcome)
    raise AssertionError("no case found the defect")


def assert_small(drawn, outcome, rows=4):
    assert outcome.wrong
    assert sum(table.size for table in drawn.tables.values()) <= rows, script(drawn, outcome.why)
    assert len([n for n in drawn.on.walk() if n.op not in ("col", "lit")]) <= 3, drawn.on.sql()
    assert len(script(drawn, "").splitlines()) < 20


def test_a_comparison_that_includes_its_end_is_found(monkeypatch):
    right = interval.interval_around
    monkeypatch.setattr(
        interval, "interval_around", lambda op, *keys: right({"<": "<="}.get(op, op), *keys)
    )
    assert_small(*found())


def test_a_null_that_matches_is_found(monkeypatch):
    def valid(arrays, specs):
        whole = all(pa.types.is_integer(array.type) for array in arrays)
        return None if whole else right(arrays, specs)

    right, encode = rows._valid, rows.encode
    monkeypatch.setattr(rows, "_valid", valid)
    monkeypatch.setattr(
        rows, "encode", lambda a, **k: encode(a.fill_null(0) if a.null_count else a, **k)
    )
    assert_small(*found())


def test_a_band_that_saturates_is_found(monkeypatch):
    def held(keys, step):
        ends = np.iinfo(np.int64)
        stepped = [min(max(int(key) + step, ends.min), ends.max) for key in keys]
        return np.array(stepped, np.int64)

    def saturating(least, most, low, high):
        ends = None if low is None else held(least, low), None if high is None else held(most, high)
        return interval.Interval(*ends)

    monkeypatch.setattr(parts, "shift_interval", saturating)

    def at_the_ends(drawn):
        stored = [v for t in drawn.tables.values() for c in t.columns for v in c.values]
        return any(isinstance(v, int) and abs(v) > 2**62 for v in stored)

    # The first such case is the 14,548th: the campaign comes there in three minutes.
    drawn, outcome = found(15_000, at_the_ends, first=14_400)
    assert outcome.why == "extra rows"
    assert_small(drawn, outcome)


def test_a_lost_last_chunk_is_found(monkeypatch):
    right = joiner._stream

    def shorter(*arguments):
        def chained():
            chunks = list(right(*arguments)())
            yield from chunks[:-1] if len(chunks) > 1 else chunks

        return chained

    monkeypatch.setattr(joiner, "_stream", shorter)
    drawn, outcome = found(2000)
    assert_small(drawn, outcome, rows=70)
    assert outcome.why == "missing rows"


def test_the_command_reports_what_it_did(capsys):
    CAMPAIGNS.run(
        "fuzz", as_json=True, scale=1.0, words=["--cases", "20", "--seed=3", "--jobs", "1"]
    )
    report = json.loads(capsys.readouterr().out)
    assert report["figures"]["cases"] == 20
    assert report["figures"]["wrong"] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--case", "3"], "no option '--case': it has --cases"),
        (["--cases", "many"], "--cases many: give a whole number"),
        (["--cases"], "give a whole number"),
        (["--cases", "-1"], "must not be negative"),
    ],
)
def test_options_of_the_command(words, message):
    with pytest.raises(OptionError, match=message):
        CAMPAIGNS.run("fuzz", as_json=True, scale=1.0, words=words)
