"""StreamJoin: the join of two streams inside one process; each call happens whole or not at all."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar, Unpack

import pyarrow as pa

from thetajoin.batch.tables import Input
from thetajoin.edge import plain, public
from thetajoin.engine import snapshot as snapshots
from thetajoin.engine.compiled import Kind, compile_call, compile_here
from thetajoin.engine.layout import HowName, check_indicator
from thetajoin.engine.nearest import Nearest, nearest_condition
from thetajoin.engine.parts import SIDES, check_columns
from thetajoin.engine.rows import conform, take_all_in
from thetajoin.engine.snapshot import read, report_damage
from thetajoin.engine.spec import JoinOptions, JoinSpec, Options, check_window
from thetajoin.engine.state import JoinState
from thetajoin.errors import (
    OptionError,
    SchemaError,
    ThetaJoinError,
    WindowError,
    enough_memory,
)
from thetajoin.kernels.threads import new_lock
from thetajoin.predicate import condition_text
from thetajoin.predicate.builder import On
from thetajoin.window.windows import TimeWindow, Window

P = ParamSpec("P")
R = TypeVar("R")


class _Locked(Protocol):
    _lock: threading.RLock


class _Operator(_Locked, Protocol):
    # All that calls change: one value, which is replaced and never changed itself.
    _now: Any


L = TypeVar("L", bound=_Locked)
S = TypeVar("S", bound=_Operator)


class ForgottenError(Exception):
    """A call fails because of an earlier one, which `now` no longer remembers."""

    def __init__(self, now: Any, cause: ThetaJoinError) -> None:
        super().__init__(str(cause))
        self.now, self.cause = now, cause


def serial(method: Callable[Concatenate[L, P], R]) -> Callable[Concatenate[L, P], R]:
    """A method that waits until no other such method of the same object runs."""

    @functools.wraps(method)
    def one_at_a_time(self: L, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock: return method(self, *args, **kwargs)  # noqa: E701  # fmt: skip

    return one_at_a_time


def atomic(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A `serial` method that happens whole or not at all, whatever is raised in it and where.

    It makes what is to become the state aside and assigns that to `_now`. An exception that comes
    even later, as Ctrl-C may, puts the old value back, which is still as it was.
    """

    @functools.wraps(method)
    def whole_or_not(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        before = self._now
        try:
            return method(self, *args, **kwargs)
        except ForgottenError as error:
            self._now = error.now
            raise plain(error.cause) from None
        except (ThetaJoinError, KeyboardInterrupt) as error:
            self._now = before
            raise plain(error) from None
        except BaseException:
            self._now = before
            raise

    @functools.wraps(method)
    def one_at_a_time(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        # On one line, as above, so that nothing is interrupted between the result and the caller.
        with self._lock: return whole_or_not(self, *args, **kwargs)  # noqa: E701  # fmt: skip

    return one_at_a_time


LESS = "push fewer rows at a time, or choose a shorter window"


@dataclass(frozen=True)
class StreamStats:
    """What a StreamJoin has seen, and what it holds now.

    left_rows, right_rows: rows taken in, late ones not counted.
    pairs, unmatched: matches found, and rows given out without one.
    late_rows, null_times: rows dropped as older than the watermark, rows without an event time.
    window_left, window_right: rows held.
    segments, merges, index_bytes: immutable parts, merges done, memory of the indexes.
    failed_merges: merges that ran out of memory, say; their parts go on serving, and are due again.
    """

    left_rows: int
    right_rows: int
    pairs: int
    unmatched: int
    late_rows: int
    null_times: int
    window_left: int
    window_right: int
    segments: int
    merges: int
    index_bytes: int
    failed_merges: int = 0


class LateRows(NamedTuple):
    """Rows of both sides that came behind the watermark, as they were pushed."""

    left: pa.Table
    right: pa.Table


@dataclass(frozen=True)
class _Now:
    """Everything about a StreamJoin that its calls change.

    early: rows and watermarks that wait until both sides' schemas are known.
    state: the join, from then on; it is copied before it is changed.
    pending: output that has no call yet to come out of.
    """

    schemas: Mapping[str, pa.Schema | None]
    early: tuple[tuple[str, Any], ...] = ()
    state: JoinState | None = None
    pending: tuple[pa.RecordBatch, ...] = ()
    finished: bool = False


def check_given_schema(schema: Any, name: str) -> pa.Schema | None:
    """A side's schema, where it was given."""
    if schema is not None and not isinstance(schema, pa.Schema):
        raise SchemaError(
            f"{name}_schema is a {type(schema).__name__}: give a pyarrow Schema, such as "
            "pa.schema({'ts': pa.timestamp('us'), 'price': pa.float64()})"
        )
    return schema


class StreamJoin:
    """A join of two streams in this process: push micro-batches, get the new matches.

    Exact whatever the batching. With `left_schema` and `right_schema` the condition is checked at
    once; without, when each side's first rows have come.

    Several threads may use one join: its methods wait for each other, so pushes are taken in one
    after another, in no particular order, and each pair comes out of exactly one of them.

    Every call happens whole or not at all: after an error, Ctrl-C included, the join is as it was
    before, and the same call can be made again.

    Args:
        on: the condition, as for `thetajoin.join`.
        how: "inner", "left", "right", "full", "semi" or "anti", or as Spark spells these.
        window: a `TimeWindow`, a `CountWindow` or `FullHistory()`.
        order_by: the column that orders the rows of a micro-batch for a `CountWindow`, or one per
            side.
        left_schema: the left rows' columns and types, if they are known before the rows.
        right_schema: the right rows'.
        suffix: what a right column gets behind its name where the left side has that name.
        indicator: the name of a further column that says "both", "left_only" or "right_only".
        group_by: groups of the matches, as for `thetajoin.join_agg`.
        aggs: aggregates over the matches, as there. Then `push` gives the totals so far of the
            groups that it changed, and `finish` those of all groups.
        keep_late: keep rows that come behind the watermark, for `take_late`.
        **options: how the join is run, such as ``threads=2``.

    >>> import thetajoin as tj, pyarrow as pa
    >>> join = tj.StreamJoin("l.a < r.a", window=tj.CountWindow(1000))
    >>> join.push(left=pa.table({"a": [1, 5]}), right=pa.table({"a": [3]})).to_pydict()
    {'a': [1], 'a_right': [3]}
    >>> join.push(right=pa.table({"a": [9]})).to_pydict()
    {'a': [1, 5], 'a_right': [9, 9]}
    >>> aggs = {"n": "count(*)"}
    >>> totals = tj.StreamJoin("l.a < r.a", window=tj.FullHistory(), group_by="l.a", aggs=aggs)
    >>> totals.push(left=pa.table({"a": [1, 5]}), right=pa.table({"a": [3]})).to_pydict()
    {'a': [1], 'n': [1]}
    >>> totals.push(right=pa.table({"a": [9]})).to_pydict()
    {'a': [1, 5], 'n': [2, 1]}
    """

    @public(LESS)
    def __init__(
        self,
        on: On,
        *,
        how: HowName = "inner",
        window: Window | None = None,
        order_by: str | tuple[str, str] | None = None,
        left_schema: pa.Schema | None = None,
        right_schema: pa.Schema | None = None,
        suffix: str = "_right",
        indicator: str | None = None,
        group_by: str | Sequence[str] | Mapping[str, str] = (),
        aggs: Mapping[str, str] | None = None,
        keep_late: bool = False,
        **options: Unpack[JoinOptions],
    ) -> None:
        """Check everything that can be checked without rows."""
        spec = JoinSpec.of(
            on,
            how,
            check_window(window),
            order_by,
            suffix=suffix,
            indicator=indicator,
            group_by=group_by,
            aggs=aggs,
            keep_late=keep_late,
            options=options,
        )
        self._begin(spec, left_schema, right_schema)

    @classmethod
    @public(LESS)
    def nearest(
        cls,
        *,
        key: str | tuple[str, str],
        by: Any = (),
        on: On | None = None,
        direction: str = "backward",
        tolerance: Any = None,
        k: int = 1,
        ties: str | None = None,
        order_by: str | None = None,
        how: str = "left",
        window: Window | None = None,
        left_schema: pa.Schema | None = None,
        right_schema: pa.Schema | None = None,
        suffix: str = "_right",
        indicator: str | None = None,
        keep_late: bool = False,
        **options: Unpack[JoinOptions],
    ) -> StreamJoin:
        """The nearest match of two streams: `tj.nearest`'s arguments, pushed in micro-batches.

        A left row comes out with the first `push` or `finish` after a watermark (`advance`) has
        shown that no nearer row can come.

        Args:
            key: the column that is near, or one per side; it is the window's time.
            by: columns that must be equal.
            on: any further condition.
            direction: "backward", "forward" or "nearest".
            tolerance: the largest distance that counts.
            k: how many right rows to take.
            ties: of right rows at equal distance the "first", the "last" or "all"; None as pandas
                does: the last for "backward", the first for "forward", and for "nearest" one that
                is not above the left key before one that is.
            order_by: the right column that decides between them.
            how: "left", "inner", "semi" or "anti".
            window: a `TimeWindow` on the key.
            left_schema: the left rows' columns and types, if they are known before the rows.
            right_schema: the right rows'.
            suffix: for right columns whose name is taken.
            indicator: the name of a column that says "both" or "left_only".
            keep_late: keep rows that come behind the watermark, for `take_late`.
            **options: as for `StreamJoin`.

        >>> import thetajoin as tj, pyarrow as pa
        >>> window = tj.TimeWindow(before=60, time="ts")
        >>> join = tj.StreamJoin.nearest(key="ts", window=window)
        >>> quotes = pa.table({"ts": [1, 4], "bid": [10, 11]})
        >>> join.push(left=pa.table({"ts": [5]}), right=quotes).num_rows
        0
        >>> join.advance(6)
        >>> join.push().to_pydict()["bid"]
        [11]
        """
        spec = JoinSpec.of(
            nearest_condition(by, on),
            how,
            check_window(window),
            nearest=Nearest.of(key, direction, tolerance, k, ties, order_by),
            suffix=suffix,
            indicator=indicator,
            keep_late=keep_late,
            options=options,
        )
        join = cls.__new__(cls)
        join._begin(spec, left_schema, right_schema)
        return join

    def _begin(
        self,
        spec: JoinSpec,
        left: pa.Schema | None,
        right: pa.Schema | None,
        compile_for: Callable[..., Kind] = compile_here,
    ) -> None:
        self._lock = new_lock(self)
        self._spec = spec.for_stream()
        if spec.indicator is not None:
            check_indicator(spec.indicator, spec.how, ())
        Options.parse(spec.options)
        self._now = _Now(
            {"left": check_given_schema(left, "left"), "right": check_given_schema(right, "right")}
        )
        for name, schema in self._now.schemas.items():
            self._check_names(name, schema)
        if left is not None and right is not None:
            self._now = self._open(left, right, compile_for)

    def _check_names(self, name: str, schema: pa.Schema | None) -> None:
        """Refuse rows without the columns that the window, the order and the key name."""
        spec, at = self._spec, ("left", "right").index(name)
        if schema is None:
            return

        def check(what: str, columns: tuple[str | None, str | None], **error: Any) -> None:
            mine = (columns[0], None) if at == 0 else (None, columns[1])
            check_columns(what, mine, schema, schema, **error)

        if isinstance(spec.window, TimeWindow):
            time = spec.window.left_time, spec.window.right_time
            check("the window's time", time, error=WindowError)
        if spec.order_by is not None:
            check("order_by", spec.order_by)
        if spec.nearest is not None:
            check("key", spec.nearest.key)
            check("order_by", (None, spec.nearest.order_by))

    def __repr__(self) -> str:
        spec, stats = self._spec, self.stats
        on = "" if spec.on is None else f"{condition_text(spec.on)!r}, "
        what = spec.how if spec.nearest is None else f"nearest on {' and '.join(spec.nearest.key)}"
        rows = f"{stats.window_left:,} left and {stats.window_right:,} right rows held"
        ended = ", finished" if self._now.finished else ""
        return f"<StreamJoin {on}{what}, {spec.window}: {rows}, pairs: {stats.pairs:,}{ended}>"

    @property
    def _state(self) -> JoinState | None:
        return self._now.state

    def _open(
        self,
        left: pa.Schema,
        right: pa.Schema,
        compile_for: Callable[..., Kind] = compile_here,
    ) -> _Now:
        """The join, now that both schemas are known, with the output of what waited."""
        state = compile_for(self._spec, left, right).new_state()
        state.keeps_late = self._spec.keep_late
        output: list[pa.RecordBatch] = []
        early = self._now.early
        for at, (what, value) in enumerate(early):
            if what == "watermark":
                try:
                    output += state.advance(value)
                except WindowError as error:  # refused as late as it is, and not again
                    others = (*early[:at], *early[at + 1 :])
                    raise ForgottenError(replace(self._now, early=others), error) from None
            else:
                output += state.run(*((value, None) if what == "left" else (None, value)))
        schemas = {"left": left, "right": right}
        return _Now(schemas, state=state, pending=(*self._now.pending, *output))

    @property
    @serial
    def schema(self) -> pa.Schema | None:
        """The output's schema, once both inputs' are known."""
        return None if self._state is None else self._state.schema

    @atomic
    @enough_memory(LESS)
    def push(self, left: Input | None = None, right: Input | None = None) -> pa.Table:
        """Take the next micro-batch of either or both sides and return the new matches.

        If it fails (another schema, an overflow in an expression) nothing of it is taken in, and
        the operator goes on as if it had not been pushed. Costs a few hundred ns a row and match.

        Args:
            left: new left rows: a table of any kind that `thetajoin.join` takes, but not of Spark.
            right: new right rows.

        Returns:
            The new matches as Arrow; without columns while one side's are not known yet.
        """
        self._check_open()
        given = {"left": left, "right": right}
        batches: dict[str, pa.RecordBatch | None] = {"left": None, "right": None}
        batches |= take_all_in({name: table for name, table in given.items() if table is not None})
        now = self._now if self._now.state is not None else self._learn(batches)
        if now.state is None:
            self._now = now
            return pa.table({})
        state = now.state.copy()
        output = list(state.run(batches["left"], batches["right"]))
        table = state.give_out([*now.pending, *output])
        self._now = replace(now, state=state, pending=())
        return table

    def _learn(self, batches: dict[str, pa.RecordBatch | None]) -> _Now:
        """Take in the schemas of first rows; the rows wait, if one side's is still unknown."""
        schemas = dict(self._now.schemas)
        for name, batch in batches.items():
            known = schemas[name]
            if batch is not None:
                schemas[name] = batch.schema if known is None else known
                self._check_names(name, batch.schema)
                conform(batch, schemas[name], "l" if name == "left" else "r")
        left, right = schemas["left"], schemas["right"]
        if left is not None and right is not None:
            return self._open(left, right)
        rows = [(name, batch) for name, batch in batches.items() if batch is not None]
        return replace(self._now, schemas=schemas, early=(*self._now.early, *rows))

    @atomic
    @enough_memory(LESS)
    def advance(self, watermark: Any) -> None:
        """Move event time to `watermark`: no row older than it will be taken in any more.

        Rows that nothing can match any more are removed; where they come out unmatched, they
        come with the next `push` (which may be called without rows) or with `finish`. A watermark
        older than the current one changes nothing.

        Args:
            watermark: a time like those of the window's column: a `datetime`, ISO text, or a whole
                number for a column of integers.
        """
        self._check_open()
        if not isinstance(self._spec.window, TimeWindow):
            raise WindowError("advance() moves event time: the join needs a TimeWindow for that")
        now = self._now
        if now.state is None:
            self._now = replace(now, early=(*now.early, ("watermark", watermark)))
            return
        state = now.state.copy()
        pending = (*now.pending, *state.advance(watermark))
        self._now = replace(now, state=state, pending=pending)

    @atomic
    @enough_memory(LESS)
    def take_late(self) -> LateRows:
        """The rows that came behind the watermark since this was last called.

        They are kept, in memory and in snapshots, until they are taken.

        >>> import thetajoin as tj, pyarrow as pa
        >>> window = tj.TimeWindow(10, time="ts")
        >>> join = tj.StreamJoin("l.a < r.a", window=window, keep_late=True)
        >>> found = join.push(pa.table({"ts": [50], "a": [1]}), pa.table({"ts": [51], "a": [2]}))
        >>> join.advance(40)
        >>> join.push(right=pa.table({"ts": [39, 45], "a": [5, 6]})).num_rows
        1
        >>> join.take_late().right.to_pydict()
        {'ts': [39], 'a': [5]}
        """
        if not self._spec.keep_late:
            raise OptionError("late rows were not kept: make the join with keep_late=True")
        if self._state is None:
            schemas = (self._now.schemas[name] or pa.schema([]) for name in ("left", "right"))
            return LateRows(*(schema.empty_table() for schema in schemas))
        state = self._state.copy()
        taken = state.take_dropped()
        late = LateRows(*(pa.Table.from_batches([taken[side]]) for side in SIDES))
        self._now = replace(self._now, state=state)
        return late

    @atomic
    @enough_memory(LESS)
    def finish(self) -> pa.Table:
        """End both streams and return the unmatched rows that outer and anti joins still hold."""
        self._check_open()
        now = self._now
        if now.state is None:
            table = self._finish_early()
            self._now = replace(now, finished=True)
            return table
        state = now.state.copy()
        table = state.give_out([*now.pending, *state.finish()])
        self._now = replace(now, state=state, pending=(), finished=True)
        return table

    def _finish_early(self) -> pa.Table:
        """Finish without one side's columns, which never came, if the output needs none."""
        early = self._now.early
        missing = "left" if self._now.schemas["left"] is None else "right"
        lefts = [batch for what, batch in early if what == "left"]
        if self._spec.how == "anti" and len(lefts) == len(early) and lefts:
            return pa.Table.from_batches(lefts)
        owed = self._spec.how in ("left", "right", "full", "anti") and early
        if owed or self._spec.aggs is not None:
            raise SchemaError(
                f"the {missing} input never came, so its columns are unknown: pass {missing}_schema"
            )
        return pa.table({})

    def _check_open(self) -> None:
        if self._now.finished:
            raise ThetaJoinError("this join was finished: make a new StreamJoin for more rows")

    @property
    @serial
    def stats(self) -> StreamStats:
        """Counts since the start, and what is held now."""
        state = self._state
        if state is None:
            rows = {"left": 0, "right": 0, "watermark": 0}
            for what, value in self._now.early:
                rows[what] += value.num_rows if what != "watermark" else 0
            held = rows["left"], rows["right"]
            return StreamStats(*held, 0, 0, 0, 0, *held, 0, 0, 0)
        left, right = state.stores["l"], state.stores["r"]
        counters = state.counters
        return StreamStats(
            left_rows=left.count,
            right_rows=right.count,
            pairs=counters.pairs,
            unmatched=counters.unmatched,
            late_rows=counters.late_rows,
            null_times=counters.null_times,
            window_left=left.rows,
            window_right=right.rows,
            segments=len(left.segments) + len(right.segments),
            merges=left.merges + right.merges,
            index_bytes=left.index_bytes + right.index_bytes,
            failed_merges=left.failed_merges + right.failed_merges,
        )

    @serial
    @enough_memory(LESS)
    def snapshot(self) -> bytes:
        """The whole state as bytes that `restore` reads, in this version or a later one.

        The rows are written, not the indexes, which `restore` builds again. No pickle.
        """
        self._check_open()
        state, pending = self._state, list(self._now.pending)
        saved = snapshots.Saved(
            spec=self._spec if state is None else state.spec,
            schemas=dict(self._now.schemas),
            early=list(self._now.early),
            pending=pending if state is None else state.list_owed(pending),
        )
        return snapshots.write(saved, state)

    @classmethod
    @public(LESS)
    def restore(cls, data: bytes) -> StreamJoin:
        """The operator that `snapshot` saved; it goes on exactly where that one stood.

        Bytes that are anything else are refused, whoever made them: nothing in them is executed.
        Costs a sort of the rows that were held.

        Args:
            data: what `snapshot` gave.
        """
        with report_damage():
            saved, fill = read(data)
            join = cls.__new__(cls)
            # A join that an older version began goes on, whatever would be refused now.
            schemas = saved.schemas["left"], saved.schemas["right"]
            join._begin(saved.spec, *schemas, compile_call)
            pending = saved.pending
            if join._state is not None:
                pending = join._state.restore_owed(pending)
                fill(join._state)
            join._now = replace(join._now, early=tuple(saved.early), pending=tuple(pending))
            return join
