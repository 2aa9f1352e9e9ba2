"""The oracle on cases worked out by hand."""

from __future__ import annotations

import ast
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest

import naive
from naive import Advance, Count, Full, Push, Time, compare, conj, order

NAN = math.nan
INF = math.inf


def rows(name, values, **more):
    return [
        {name: value, "id": i} | {k: v[i] for k, v in more.items()}
        for i, value in enumerate(values)
    ]


def ids(pairs):
    return sorted(
        ((l and l["id"], r and r["id"]) for l, r in pairs),
        key=lambda p: tuple(-1 if x is None else x for x in p),
    )


def test_the_oracle_does_not_import_the_package():
    tree = ast.parse(Path(naive.__file__).read_text())
    imported = {
        name.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert not any(module.startswith(("thetajoin", "numpy", "pyarrow")) for module in imported)


@pytest.mark.parametrize(
    ("a", "b", "sign"),
    [
        (1, 2, -1),
        (2, 2, 0),
        (None, 1, None),
        (1, None, None),
        (None, None, None),
        (NAN, NAN, 0),
        (NAN, INF, 1),
        (INF, NAN, -1),
        (5, NAN, -1),
        (-0.0, 0.0, 0),
        (0, -0.0, 0),
        (2**53 + 1, float(2**53), 0),  # as floats
        (2**53 + 1, 2**53, 1),
        (2**64 - 1, -(2**63), 1),
        (Decimal("0.1"), 0.1, 0),
        (Decimal("0.10"), Decimal("0.1"), 0),
        (Decimal("1" * 38), Decimal("1" * 37 + "0"), 1),
        (Decimal("1.5"), 1, 1),
        (10**400, 1.0, 1),
        (False, True, -1),
        ("", "a", -1),
        ("Z", "a", -1),
        ("é", "z", 1),
        ("\uffff", "\U00010000", -1),  # by UTF-16 units it would be the other way round
        (b"\xff", b"a", 1),
        (b"a", b"a\x00", -1),
        (date(2024, 1, 1), date(2024, 1, 2), -1),
        (date(2024, 1, 1), datetime(2024, 1, 1), 0),
        (date(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 1), -1),
        (
            datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
            datetime(2024, 1, 1, tzinfo=UTC),
            0,
        ),
        (timedelta(days=1), timedelta(hours=23), 1),
    ],
)
def test_order(a, b, sign):
    assert order(a, b) == sign
    assert order(b, a) == (None if sign is None else -sign)


def test_boolean_and_number_do_not_compare():
    with pytest.raises(TypeError):
        order(True, 1)
    with pytest.raises(TypeError):
        order("1", 1)


def test_compare():
    truth = {
        op: [compare(a, op, 1) for a in (0, 1, 2, None)] for op in ("<", "<=", ">", ">=", "=", "!=")
    }
    assert truth == {
        "<": [True, False, False, None],
        "<=": [True, True, False, None],
        ">": [False, False, True, None],
        ">=": [False, True, True, None],
        "=": [False, True, False, None],
        "!=": [True, False, True, None],
    }


def test_three_valued_logic():
    true, false, null = (lambda l, r: True), (lambda l, r: False), (lambda l, r: None)
    table = {"t": true, "f": false, "n": null}
    conjunction = {a + b: naive.all_of(table[a], table[b])({}, {}) for a in table for b in table}
    assert conjunction == {
        "tt": True, "tf": False, "tn": None,
        "ft": False, "ff": False, "fn": False,
        "nt": None, "nf": False, "nn": None,
    }  # fmt: skip
    disjunction = {a + b: naive.any_of(table[a], table[b])({}, {}) for a in table for b in table}
    assert disjunction == {
        "tt": True, "tf": True, "tn": True,
        "ft": True, "ff": False, "fn": None,
        "nt": True, "nf": None, "nn": None,
    }  # fmt: skip


LEFT = rows("a", [1, 3, None, 5])
RIGHT = rows("b", [3, 4, None, 0])


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [(0, 0), (0, 1), (1, 1)]),
        ("left", [(0, 0), (0, 1), (1, 1), (2, None), (3, None)]),
        ("right", [(None, 2), (None, 3), (0, 0), (0, 1), (1, 1)]),
        ("full", [(None, 2), (None, 3), (0, 0), (0, 1), (1, 1), (2, None), (3, None)]),
        ("semi", [(0, None), (1, None)]),
        ("anti", [(2, None), (3, None)]),
    ],
)
def test_how(how, expected):
    assert ids(naive.naive_join(LEFT, RIGHT, conj(("a", "<", "b")), how=how)) == expected


def test_two_predicates():
    left = rows("a", [1, 2], c=[10, 20])
    right = rows("b", [2, 3], d=[15, 5])
    # 1 < 2, 10 > 15 no; 1 < 3, 10 > 5 yes; 2 < 2 no; 2 < 3, 20 > 5 yes
    assert ids(naive.naive_join(left, right, conj(("a", "<", "b"), ("c", ">", "d")))) == [
        (0, 1),
        (1, 1),
    ]


def test_band():
    pred = naive.band("a", "b", "<=", 2)
    assert ids(naive.naive_join(LEFT, RIGHT, pred)) == [
        (0, 0),
        (0, 3),
        (1, 0),
        (1, 1),
        (3, 0),
        (3, 1),
    ]


def test_time_window_by_hand():
    left = rows("t", [10, 20, None])
    right = rows("t", [4, 5, 11, 12, None, 21])
    always = conj()
    assert always({}, {}) is True
    # l.t - 5 <= r.t <= l.t + 1: for 10 from 5 to 11, for 20 from 15 to 21
    assert ids(naive.naive_join(left, right, always, window=Time(5, 1))) == [(0, 1), (0, 2), (1, 5)]


def test_time_window_over_datetimes():
    start = datetime(2024, 1, 1)
    left = rows("t", [start])
    right = rows(
        "t", [start - timedelta(minutes=10), start + timedelta(minutes=10, microseconds=1)]
    )
    ten = timedelta(minutes=10)
    assert ids(naive.naive_join(left, right, conj(), window=Time(ten, ten))) == [(0, 0)]


def test_first_visible_by_hand():
    # size 4, slide 2: up to 4 rows all are seen; the fifth pushes a slide of two out.
    assert [Count(4, 2).first_visible(n) for n in range(9)] == [0, 0, 0, 0, 0, 2, 2, 4, 4]
    assert [Count(3).first_visible(n) for n in range(6)] == [0, 0, 0, 0, 1, 2]
    assert [Count(2, 5).first_visible(n) for n in range(9)] == [0, 0, 0, 5, 5, 5, 5, 5, 10]


def test_count_window_by_hand():
    # Arrival by t: l0 r0 r1 r2 l1 r3 l2; size 2, slide 1.
    left = rows("t", [0, 4, 6])
    right = rows("t", [1, 2, 3, 5])
    pairs = naive.naive_join(left, right, conj(), window=Count(2), order_by="t")
    # r0, r1, r2 each see l0 (the left has had 1 row); l1 sees r1 r2; r3 sees l0 l1; l2 sees r2 r3.
    assert ids(pairs) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (2, 2), (2, 3)]


def test_count_window_with_slide_by_hand():
    # All right rows first (r0 .. r4), then one left row. size 4, slide 2: n = 5, so from index 2.
    left = rows("t", [9])
    right = rows("t", [0, 1, 2, 3, 4])
    pairs = naive.naive_join(left, right, conj(), window=Count(4, 2), order_by="t")
    assert ids(pairs) == [(0, 2), (0, 3), (0, 4)]


def test_count_window_ties_take_the_left_row_first():
    left, right = rows("t", [1, 1]), rows("t", [1])
    # Arrival: l0 l1 r0; the right row sees the newest left row only.
    assert ids(naive.naive_join(left, right, conj(), window=Count(1), order_by="t")) == [(1, 0)]


def test_count_window_null_order_keys_come_first():
    left, right = rows("t", [None, 5]), rows("t", [1, None])
    # Arrival: l0 r1 r0 l1; r1 and r0 see l0; l1 sees r0 only.
    assert ids(naive.naive_join(left, right, conj(), window=Count(1), order_by="t")) == [
        (0, 0),
        (0, 1),
        (1, 0),
    ]


def test_count_window_without_order_takes_left_rows_first():
    left, right = rows("t", [0, 0, 0]), rows("t", [0])
    assert ids(naive.naive_join(left, right, conj(), window=Count(2))) == [(1, 0), (2, 0)]


def test_order_by_one_column_per_side():
    left, right = rows("x", [2]), rows("y", [1, 3])
    # Arrival: r0 l0 r1.
    assert ids(naive.naive_join(left, right, conj(), window=Count(1), order_by=("x", "y"))) == [
        (0, 0),
        (0, 1),
    ]


def test_micro_batches_come_one_after_the_other():
    early, late = rows("t", [100]), rows("t", [1])
    steps = [Push(left=early), Push(right=late), Push(left=[{"t": 0, "id": 7}])]
    result = naive.naive_stream(steps, conj(), window=Count(1), order_by="t")
    assert ids(result.rows) == [(0, 0), (7, 0)]
    assert [len(step) for step in result.steps] == [0, 1, 1]


def test_late_rows_are_dropped_and_counted():
    steps = [
        Push(left=rows("t", [10, 20])),
        Advance(15),
        Push(right=rows("t", [14, 15, None, 25])),
        Advance(12),  # a watermark never goes back
        Push(right=[{"t": 14, "id": 9}]),
    ]
    result = naive.naive_stream(steps, conj(), how="full", window=Time(5, 5))
    assert (result.late_rows, result.null_times, result.pairs) == (2, 1, 3)
    assert ids(result.rows) == [(None, 2), (0, 1), (1, 1), (1, 3)]


def test_semi_join_gives_a_row_at_its_first_match():
    steps = [Push(left=LEFT), Push(right=RIGHT[:1]), Push(right=RIGHT[1:])]
    result = naive.naive_stream(steps, conj(("a", "<", "b")), how="semi", window=Full())
    assert [ids(step) for step in result.steps] == [[], [(0, None)], [(1, None)]]


def test_self_join_by_hand():
    table = rows("a", [1, 2, 2])
    less = conj(("a", "<", "a"))
    assert ids(naive.naive_self_join(table, less)) == [(0, 1), (0, 2)]
    same = conj(("a", "=", "a"))
    assert ids(naive.naive_self_join(table, same)) == [(1, 2), (2, 1)]
    always = conj()
    assert ids(naive.naive_self_join(table, always, window=Count(1))) == [
        (0, 1),
        (1, 0),
        (1, 2),
        (2, 1),
    ]
    # Order 2, 2, 1: the window of one row pairs neighbours only.
    assert ids(
        naive.naive_self_join(
            [{"a": 1, "id": 0}, {"a": 0, "id": 1}, {"a": 0, "id": 2}],
            always,
            window=Count(1),
            order_by="a",
        )
    ) == [(0, 2), (1, 2), (2, 0), (2, 1)]


def test_self_join_time_window_tries_both_roles():
    table = rows("t", [0, 3])
    # Only r.t - l.t between 0 and 5: the earlier row is on the left.
    assert ids(naive.naive_self_join(table, conj(), window=Time(0, 5))) == [(0, 1)]
