"""Partial aggregates by group: filled from answers or pairs, merged, and turned into a result."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.aggregate.columns import (
    NONE,
    doubles,
    group_rows,
    present,
    rank_values,
    whole_words,
    words_of,
)
from thetajoin.aggregate.spec import AggSpec, Output
from thetajoin.batch.keys import Int64
from thetajoin.errors import DataError
from thetajoin.kernels import exact_sums

Words = tuple[Int64, NDArray[np.uint64]]


@dataclass
class Sums:
    """A term's sum by group: 128-bit words, or pairs of doubles (`kernels.exact_sums`)."""

    words: list[Words]
    floats: NDArray[np.float64]
    errors: NDArray[np.float64]

    @staticmethod
    def zero(words: int, size: int) -> Sums:
        """Nothing added yet."""
        return Sums(
            [(np.zeros(size, np.int64), np.zeros(size, np.uint64)) for _ in range(words)],
            np.zeros(0 if words else size),
            np.zeros(0 if words else size),
        )

    def add_rows(self, codes: Int64, array: pa.Array, times: Int64) -> None:
        """Add each row's value as often as it counts."""
        if not self.words:
            exact_sums.add_float_products(codes, doubles(array), times, self.floats, self.errors)
            return
        words = whole_words(array)
        for at, (word, (high, low)) in enumerate(zip(words, self.words, strict=True)):
            exact_sums.add_products(codes, word, times, at + 1 < len(words), high, low)

    def merge(self, codes: Int64, other: Sums) -> None:
        """Add another's groups, numbered by `codes`."""
        for mine, theirs in zip(self.words, other.words, strict=True):
            exact_sums.add_wide_at(codes, *theirs, *mine)
        if not self.words:
            exact_sums.add_float_sums(codes, other.floats, other.errors, self.floats, self.errors)

    def integers(self) -> list[int]:
        """The exact sums."""
        totals = [0] * len(self.words[0][0])
        for at, (high, low) in enumerate(self.words):
            for g, (top, rest) in enumerate(zip(high.tolist(), low.tolist(), strict=True)):
                totals[g] += ((top << 64) + rest) << (64 * at)
        return totals

    def as_floats(self) -> NDArray[np.float64]:
        """The sums rounded to doubles."""
        if not self.words:
            with np.errstate(invalid="ignore", over="ignore"):
                return np.where(np.isfinite(self.floats), self.floats + self.errors, self.floats)
        out, error = np.zeros(len(self.words[0][0])), np.zeros(len(self.words[0][0]))
        for at, (high, low) in reversed(list(enumerate(self.words))):
            exact_sums.add_words_to_floats(high, low, 64 * at, out, error)
        return out + error


@dataclass
class State:
    """What is known of each group: its values, how many pairs, and the state of each term."""

    spec: AggSpec
    keys: list[pa.Array]
    pairs: Int64
    counts: dict[int, Int64]
    sums: dict[int, Sums]
    # Candidates for extremes, reduced by `settle`: group numbers and values.
    best: dict[int, list[tuple[Int64, pa.Array]]] = field(default_factory=dict)

    @staticmethod
    def empty(spec: AggSpec, keys: list[pa.Array], size: int) -> State:
        """Groups without any pairs."""
        state = State(spec, keys, np.zeros(size, np.int64), {}, {})
        for at, term in enumerate(spec.terms):
            if term.kind == "count":
                state.counts[at] = np.zeros(size, np.int64)
            elif term.kind == "sum":
                state.sums[at] = Sums.zero(words_of(term), size)
            else:
                state.best[at] = []
        return state

    @staticmethod
    def nothing(spec: AggSpec) -> State:
        """The state before any rows: no groups, or the single one of a query without groups."""
        keys = [pa.array([], group.expr.type) for group in spec.groups]
        return State.empty(spec, keys, 0 if spec.groups else 1)

    @property
    def size(self) -> int:
        """Number of groups."""
        return self.pairs.size

    def add_rows(self, codes: Int64, times: Int64, arrays: dict[int, pa.Array]) -> None:
        """Add rows that each stand for `times` pairs: `arrays` has terms' values for each row."""
        for at, array in arrays.items():
            term = self.spec.terms[at]
            if term.kind == "count":
                exact_sums.count_at(codes, times * present(array), self.counts[at])
            elif term.kind == "sum":
                self.sums[at].add_rows(codes, array, times)
            else:
                ranks, by_rank = rank_values(array, largest=term.kind == "max")
                least = np.full(self.size, NONE, np.int64)
                exact_sums.least_at(codes, np.where(times > 0, ranks, NONE), least)
                self.add_best(at, least, array, by_rank)

    def add_best(self, at: int, least: Int64, array: pa.Array, by_rank: Int64) -> None:
        """Take the values of the least ranks as candidates."""
        if found := _candidates(least, array, by_rank):
            self.best[at].append(found)

    def settle(self) -> None:
        """Leave one candidate for each group."""
        for at, candidates in self.best.items():
            if len(candidates) < 2:
                continue
            codes = np.concatenate([codes for codes, _ in candidates])
            values = pa.concat_arrays([values for _, values in candidates])
            ranks, by_rank = rank_values(values, largest=self.spec.terms[at].kind == "max")
            least = np.full(self.size, NONE, np.int64)
            exact_sums.least_at(codes, ranks, least)
            found = _candidates(least, values, by_rank)
            self.best[at] = [] if found is None else [found]

    @property
    def adds_nothing(self) -> bool:
        """Whether another state would be the same with this one merged into it."""
        kept = self.spec.keeps_left and self.size > 0
        return not kept and not (self.pairs > 0).any()

    def keep_shown(self) -> State:
        """The groups that a result has."""
        return self if self.spec.keeps_left else self.keep_seen()

    def keep_seen(self) -> State:
        """Only groups with pairs; without groups, the one group stays."""
        if not self.spec.groups or bool((self.pairs > 0).all()):
            return self
        return self.take(np.flatnonzero(self.pairs > 0))

    def take(self, kept: Int64) -> State:
        """Some of the groups."""
        codes = np.full(self.size, -1, np.int64)
        codes[kept] = np.arange(kept.size)
        keys = [key.take(pa.array(kept)) for key in self.keys]
        part = State.empty(self.spec, keys, kept.size)
        part.pairs = self.pairs[kept]
        part.counts = {at: count[kept] for at, count in self.counts.items()}
        for at, sums in self.sums.items():
            part.sums[at] = Sums(
                [(high[kept], low[kept]) for high, low in sums.words],
                sums.floats[kept] if not sums.words else sums.floats,
                sums.errors[kept] if not sums.words else sums.errors,
            )
        for at, candidates in self.best.items():
            for groups, values in candidates:
                there = codes[groups] >= 0
                part.best[at].append((codes[groups][there], values.filter(pa.array(there))))
        return part

    def to_batch(self) -> pa.RecordBatch:
        """The state as columns, which `from_batch` reads."""
        self.settle()
        columns = {f"key {at}": key for at, key in enumerate(self.keys)}
        columns["pairs"] = pa.array(self.pairs)
        for at, count in self.counts.items():
            columns[f"count {at}"] = pa.array(count)
        for at, sums in self.sums.items():
            for word, (high, low) in enumerate(sums.words):
                columns[f"high {at} {word}"] = pa.array(high)
                columns[f"low {at} {word}"] = pa.array(low)
            if not sums.words:
                columns[f"float {at}"] = pa.array(sums.floats)
                columns[f"error {at}"] = pa.array(sums.errors)
        for at in self.best:
            columns[f"best {at}"] = self.extremes(at)
        return pa.RecordBatch.from_pydict(columns)

    @staticmethod
    def from_batch(spec: AggSpec, batch: pa.RecordBatch) -> State:
        """The state that `to_batch` wrote."""
        keys = [batch.column(f"key {at}") for at in range(len(spec.groups))]
        state = State.empty(spec, keys, batch.num_rows)

        def read(name: str) -> Any:
            return batch.column(name).to_numpy().copy()

        state.pairs = read("pairs")
        for at in state.counts:
            state.counts[at] = read(f"count {at}")
        for at, sums in state.sums.items():
            words = range(len(sums.words))
            sums.words = [(read(f"high {at} {word}"), read(f"low {at} {word}")) for word in words]
            if not sums.words:
                sums.floats, sums.errors = read(f"float {at}"), read(f"error {at}")
        for at in state.best:
            values = batch.column(f"best {at}")
            state.best[at] = [(np.flatnonzero(present(values)), values.drop_null())]
        return state

    def extremes(self, at: int) -> pa.Array:
        """The best value of each group, once settled; NULL where there is none."""
        candidates = self.best[at]
        if not candidates:
            return pa.nulls(self.size, self.spec.terms[at].expr.type)
        groups, values = candidates[0]
        rows = np.full(self.size, -1, np.int64)
        rows[groups] = np.arange(groups.size)
        return values.take(pa.array(rows, mask=rows < 0))


def _candidates(least: Int64, array: pa.Array, by_rank: Int64) -> tuple[Int64, pa.Array] | None:
    """The groups that have a least rank, and its value in each."""
    groups = np.flatnonzero(least != NONE)
    if not groups.size:
        return None
    return groups, array.take(pa.array(by_rank[least[groups]]))


def merge(states: list[State]) -> State:
    """One state of several; groups with equal values become one."""
    spec = states[0].spec
    filled = [state for state in states if not state.adds_nothing]
    if len(filled) < 2:
        only = filled[0] if filled else states[0]
        only.settle()
        return only
    states = filled
    keys = [
        pa.concat_arrays([state.keys[at] for state in states]) for at in range(len(spec.groups))
    ]
    grouping = group_rows(keys, sum(state.size for state in states))
    merged = State.empty(spec, grouping.keys, grouping.size)
    start = 0
    for state in states:
        codes = grouping.codes[start : start + state.size]
        start += state.size
        exact_sums.count_at(codes, state.pairs, merged.pairs)
        for at, count in state.counts.items():
            exact_sums.count_at(codes, count, merged.counts[at])
        for at, sums in state.sums.items():
            merged.sums[at].merge(codes, sums)
        for at, candidates in state.best.items():
            merged.best[at] += [(codes[groups], values) for groups, values in candidates]
    merged.settle()
    return merged


def result(state: State) -> pa.Table:
    """The result's columns; groups without pairs are left out unless the query keeps them."""
    state.settle()
    state = state.keep_shown()
    columns = [*state.keys, *(_column(state, output) for output in state.spec.outputs)]
    schema = state.spec.schema
    cast = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.table(cast, schema=schema)


def _column(state: State, output: Output) -> pa.Array:
    if not output.terms:
        return pa.array(state.pairs)
    at = output.terms[0]
    if output.function == "count":
        return pa.array(state.counts[at])
    if output.function in ("min", "max"):
        best = state.extremes(at)
        return best if output.categories is None else output.categories.at(best)
    count = state.counts[output.terms[1]]
    empty = count == 0
    sums = state.sums[at]
    if output.function == "avg":
        return _average(sums, count, empty, output, state.spec.terms[at].expr.type)
    if pa.types.is_floating(output.type):
        return pa.array(sums.as_floats(), mask=empty)
    return _whole_sum(sums, empty, output, state)


def _average(
    sums: Sums, count: Int64, empty: NDArray[np.bool_], output: Output, type_: pa.DataType
) -> pa.Array:
    if not pa.types.is_decimal(type_):
        with np.errstate(invalid="ignore", divide="ignore"):
            return pa.array(sums.as_floats() / count, mask=empty)
    grow = 10 ** (output.type.scale - type_.scale) if output.type.scale >= type_.scale else 1
    values = [
        None if n == 0 else to_decimal(_half_up(total * grow, n), output.type.scale)
        for total, n in zip(sums.integers(), count.tolist(), strict=True)
    ]
    return _decimals(values, output)


def _half_up(total: int, count: int) -> int:
    quotient = (2 * abs(total) + count) // (2 * count)
    return quotient if total >= 0 else -quotient


def to_decimal(value: int, scale: int) -> Decimal:
    """An integer as a decimal with `scale` digits after the point."""
    digits = tuple(int(digit) for digit in str(abs(value)))
    return Decimal((int(value < 0), digits, -scale))


def _whole_sum(sums: Sums, empty: NDArray[np.bool_], output: Output, state: State) -> pa.Array:
    if pa.types.is_integer(output.type):
        ((high, low),) = sums.words
        values = low.view(np.int64)
        wrong = np.flatnonzero(high != values >> 63)
        if wrong.size:
            raise overflow(output, state.keys, int(wrong[0]))
        return pa.array(values, mask=empty)
    decimals = [
        None if gone else to_decimal(total, output.type.scale)
        for total, gone in zip(sums.integers(), empty.tolist(), strict=True)
    ]
    return _decimals(decimals, output)


def _decimals(values: list[Decimal | None], output: Output) -> pa.Array:
    most = Decimal((0, (9,) * output.type.precision, -output.type.scale))
    for value in values:
        if value is not None and value.copy_abs() > most:  # `abs` would round
            raise DataError(f"{output.text} overflows {output.type}: {value}")
    return pa.array(values, output.type)


def overflow(output: Output, keys: list[pa.Array], group: int) -> DataError:
    """The error for a sum that does not fit."""
    where = ", ".join(str(key[group].as_py()) for key in keys)
    return DataError(
        f"{output.text} overflows BIGINT{f' in group ({where})' if keys else ''}: "
        "cast its argument to DECIMAL(38, 0) or DOUBLE"
    )
