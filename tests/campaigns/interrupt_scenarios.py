"""What is interrupted: calls on a StreamJoin, of rows and of totals, and on the module itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa

import naive
import thetajoin as tj
from thetajoin.engine.stream import LateRows

ON, MATCHES = "l.a < r.b AND l.c >= r.d", naive.conj(("a", "<", "b"), ("c", ">=", "d"))
LEFT = pa.schema({"lid": pa.int64(), "a": pa.int64(), "c": pa.float64(), "t": pa.int64()})
RIGHT = pa.schema({"rid": pa.int64(), "b": pa.int64(), "d": pa.float64(), "t": pa.int64()})
HOWS = ("inner", "left", "right", "full", "semi", "anti")
# Small enough that a few pushes fill heads, close them, and merge segments.
RUN = {"head_rows": 8, "threads": 1}
TOTALS = {"n": "count(*)", "s": "sum(r.d)", "hi": "max(r.b)", "lo": "min(l.c)"}


@dataclass(frozen=True)
class Call:
    """A method and what it is given; calls that only lead up to others are not traced."""

    method: str
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    traced: bool = True

    @property
    def reads_only(self) -> bool:
        """Whether leaving it out, or making it twice, is meant to change nothing."""
        return self.method in ("snapshot", "stats", "_idle_push")

    def on(self, operator: Any) -> Any:
        """Make it."""
        found = getattr(operator, self.method)
        return found(*self.args, **self.options) if callable(found) else found


@dataclass(frozen=True)
class Scenario:
    """Calls on an object that `make` makes; `compare` judges what they give undisturbed."""

    name: str
    make: Callable[[], Any]
    calls: list[Call]
    compare: Callable[[list[Any]], str] = lambda results: "" if any(results) else "nothing came out"

    def read(self, operator: Any, at: int, result: Any) -> Any:
        """A call's result as something to compare: rows without an order.

        Of a snapshot, what the operator restored from it gives to the calls that follow.
        """
        if isinstance(result, bytes):
            again = type(operator).restore(result)
            following = [call for call in self.calls[at + 1 :] if call.method != "snapshot"]
            return Counter(row for call in following for row in rows_of(call.on(again)).elements())
        return rows_of(result)


def rows_of(result: Any) -> Counter[Any]:
    """The rows that a call gave, late ones marked."""
    if isinstance(result, LateRows):
        return Counter(
            (side, *row) for side in ("left", "right") for row in rows_of(getattr(result, side))
        )
    if isinstance(result, pa.Table):
        columns = [map(plain, column.to_pylist()) for column in result.columns]
        return Counter(zip(*columns, strict=True))
    return Counter()


def plain(value: Any) -> Any:
    """A value that equals itself, and no other that it can be told apart from."""
    return repr(value) if isinstance(value, float) else value


class Rows:
    """Rows with values from small ranges, so that ties abound, and times that go up."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self._number = 0

    def draw(self, names: str, size: int, times: tuple[int, int]) -> list[naive.Row]:
        """Rows with the columns id, two values and the time."""
        made = []
        for _ in range(size):
            self._number += 1
            value = self._rng.choice((None, *range(6), *range(6)))
            other = self._rng.choice((None, 0.0, -0.0, 1.5, 2.5, float("nan"), 4.0))
            ident, first, second = names
            made.append({
                f"{'l' if ident == 'l' else 'r'}id": self._number,
                first: value,
                second: other,
                "t": self._rng.randint(*times),
            })  # fmt: skip
        return made


def steps(seed: int, *, timed: bool, sizes: tuple[int, ...] = (8, 6, 9, 0, 14, 7)) -> list[Any]:
    """Pushes, and where there is event time a watermark behind most of them."""
    rows, made = Rows(seed), []
    for at, size in enumerate(sizes):
        times = (max(0, 10 * at - 18), 10 * at + 14)  # some rows come behind the watermark
        left, right = rows.draw("lac", size, times), rows.draw("rbd", max(0, size - 1), times)
        if at == 1:
            right = []
        made.append(naive.Push(left, right))
        if timed and at in (1, 3, 4):
            made.append(naive.Advance(10 * at - 2))
    return made


def calls_of(made: list[Any], *, last: tuple[str, ...]) -> list[Call]:
    """The same as calls on an operator."""
    calls = []
    for step in made:
        if isinstance(step, naive.Advance):
            calls += [Call("advance", (step.watermark,)), Call("push", traced=False)]
        else:
            left = pa.Table.from_pylist(list(step.left), LEFT) if step.left else None
            right = pa.Table.from_pylist(list(step.right), RIGHT) if step.right else None
            calls.append(Call("push", (left, right), traced=bool(step.left or step.right)))
    return [*calls, *(Call(method) for method in last)]


def windows() -> dict[str, tuple[Any, Any]]:
    """Windows by name, ours and the naive join's."""
    return {
        "time": (tj.TimeWindow(12, time="t"), naive.Time(12, 12)),
        "count": (tj.CountWindow(6, slide=2), naive.Count(6, 2)),
        "full": (tj.FullHistory(), naive.Full()),
    }


def _key(row: naive.Row | None, schema: pa.Schema) -> tuple[Any, ...]:
    return tuple(None if row is None else plain(row[name]) for name in schema.names)


def _compare_pairs(
    made: list[Any], how: str, window: Any, order_by: Any, results: list[Any]
) -> str:
    naively = naive.naive_stream(made, MATCHES, how=how, window=window, order_by=order_by)
    alone = how in ("semi", "anti")
    wanted = Counter((*_key(l, LEFT), *(() if alone else _key(r, RIGHT))) for l, r in naively.rows)
    got: Counter[Any] = sum((r for r in results if isinstance(r, Counter)), Counter())
    got = Counter({row: n for row, n in got.items() if row[0] not in ("left", "right")})
    if got != wanted:
        return "the rows are not those of the naive join"
    return "" if wanted else "nothing is to come out"


def _stream(how: str, name: str, **options: Any) -> Scenario:
    window, naively = windows()[name]
    made = steps(7, timed=name == "time")
    order_by = ("t", "t") if name == "count" else None
    given: dict[str, Any] = {"order_by": order_by, "keep_late": name == "time"}
    given |= RUN | options
    # What follows a snapshot, or is given out late, is counted once only.
    last = ("finish",)
    schemas = options.pop("schemas", True)
    given.pop("schemas", None)
    if schemas:
        given |= {"left_schema": LEFT, "right_schema": RIGHT}
    label = "-".join(str(v) for v in options.values())
    return Scenario(
        "-".join(filter(None, ("stream", how, name, label, "" if schemas else "early"))),
        partial(tj.StreamJoin, ON, how=how, window=window, **given),
        calls_of(made, last=last),
        partial(_compare_pairs, made, how, naively, order_by),
    )


def _saving(how: str, name: str) -> Scenario:
    """Late rows are taken, and snapshots, whose rows come out of two operators."""
    base = _stream(how, name)
    calls = [call for call in base.calls if call.traced]
    extra = [Call("take_late")] if name == "time" else []
    calls = [*(Call(c.method, c.args, traced=False) for c in calls[:-1]), *extra]
    calls = [*calls, Call("snapshot"), Call("stats", traced=False), calls[0], Call("finish")]
    return Scenario(f"saving-{how}-{name}", base.make, calls)


def _nearest(direction: str, how: str) -> Scenario:
    made = steps(11, timed=True)
    window = tj.TimeWindow(before=12, after=12, time="t")
    make = partial(
        tj.StreamJoin.nearest, key="t", on="l.c >= r.d", direction=direction, how=how, k=2,
        window=window, left_schema=LEFT, right_schema=RIGHT, **RUN,
    )  # fmt: skip
    last = ("finish",) if how == "anti" else ("snapshot", "finish")
    return Scenario(f"nearest-{direction}-{how}", make, calls_of(made, last=last))


def _totals(how: str, name: str) -> Scenario:
    made = steps(19, timed=name == "time")
    make = partial(
        tj.StreamJoin, ON, how=how, aggs=TOTALS, group_by="l.a", window=windows()[name][0],
        order_by=("t", "t") if name == "count" else None,
        left_schema=LEFT, right_schema=RIGHT, **RUN,
    )  # fmt: skip
    calls = calls_of(made, last=("snapshot", "finish"))
    return Scenario(f"totals-{how}-{name}", make, calls)


def _table(method: str, *args: Any, **options: Any) -> Scenario:
    rows = Rows(17)
    left = pa.Table.from_pylist(rows.draw("lac", 30, (0, 50)), LEFT)
    right = pa.Table.from_pylist(rows.draw("rbd", 30, (0, 50)), RIGHT)
    inputs: tuple[Any, ...] = (left,) if method.startswith("self") else (left, right)
    if method == "join_many":
        inputs = ({"l": left, "r": right},)
    if method == "sql":
        inputs, options = (), {**options, "l": left, "r": right}
        call = Call(method, args, options)
    else:
        call = Call(method, (*inputs, *args), options)
    label = "-".join(str(v) for v in options.values() if isinstance(v, str))
    return Scenario(f"table-{method}-{label}", lambda: tj, [call, call])


def _all() -> list[Scenario]:
    outer = {"time": HOWS, "count": HOWS, "full": ("inner", "semi")}
    made = [_stream(how, name) for name, hows in outer.items() for how in hows]
    made += [_stream(how, name, merge="inline") for name in ("time", "count") for how in HOWS]
    made += [_stream("full", "time", schemas=False), _stream("inner", "count", schemas=False)]
    structures = ("auto", "pim_tree", "bi_sort", "b_chain")
    made += [_stream("left", "time", index=index) for index in structures]
    made += [_saving(how, name) for how, name in (("left", "time"), ("full", "count"))]
    made += [_nearest(d, "left") for d in ("backward", "forward", "nearest")]
    made += [_nearest("backward", how) for how in ("inner", "semi", "anti")]
    made += [_totals(how, name) for how in ("inner", "left") for name in windows()]
    made += [_table("join", ON, how=how, check_memory=False) for how in HOWS]
    made += [
        _table("self_join", "l.a < r.a AND l.c >= r.c"),
        _table("join_agg", ON, group_by="l.a", aggs=TOTALS),
        _table("nearest", key="t", on="l.c >= r.d"),
        _table("sql", "SELECT l.lid, r.rid FROM l JOIN r ON l.a < r.b AND l.c >= r.d"),
    ]
    return made


def names() -> list[str]:
    """All scenarios."""
    return [scenario.name for scenario in _all()]


def find(name: str) -> Scenario:
    """A scenario by its name."""
    return next(scenario for scenario in _all() if scenario.name == name)
