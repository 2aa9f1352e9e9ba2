"""The plan of a join: how its condition, its totals and its size were decided; prints well.

What a sample of both sides says of the cost is in it.
"""

from __future__ import annotations

import html
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from thetajoin.aggregate.run import Aggregator
from thetajoin.aggregate.solve import MOST_ORDERS
from thetajoin.aggregate.state import result
from thetajoin.aggregate.totals import TotalsJoin
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.machine import Size
from thetajoin.engine.parts import OTHER, Part, Side
from thetajoin.engine.rows import cast_for_storage, make_batch, storage_schema
from thetajoin.engine.spec import JoinSpec
from thetajoin.engine.tables import LookUp, plan_look_ups
from thetajoin.index.po_join import PoJoin
from thetajoin.index.probe import Arrivals, Probe
from thetajoin.paper_options import AUTO, PO_JOIN, explain_index
from thetajoin.window.windows import CountWindow, FullHistory

# Rows of each side that an estimate looks at, and the most pairs of the sample it counts.
SAMPLE_ROWS = 2048
_KINDS = {
    "ranges": "copy each probe's range of sorted rows",
    "scan": "scan each probe's range, test the other keys, skip blocks by their extremes",
    "bitmap": "keep the other key's rows as bits over the batch, scan them in each probe's range",
    "nested loop": "try every pair: no comparison has one side on each hand",
    "overlap": "right starts inside left intervals, then left starts inside right ones, both as "
    "ranges of sorted rows",
}
_WAYS = {
    1: "running sums over the sorted key",
    2: "sweep over one key, or a summed-area table of a stored segment",
    3: "nodes of a binary tree over one key, a sweep in each",
}
# An estimate from samples is believed where it is this many times the room, or the room that many
# times it, and rests on this many pairs: of one table on both sides, sampled rows meet themselves.
SURE, ENOUGH_PAIRS = 2.0, 16 * SAMPLE_ROWS


@dataclass(frozen=True)
class PartPlan:
    """One conjunction of the condition.

    kernel: "ranges", "scan", "bitmap", "overlap" or "nested loop", as chosen for the sample; a
    stream chooses again for every batch and segment, and sees no overlaps. sorted_side: whose rows
    are sorted for the other's to look up. selectivity: share of all pairs that match, estimated;
    None where no rows were looked at.
    """

    equal: tuple[str, ...]
    ordered: tuple[str, ...]
    tested: tuple[str, ...]
    filters: tuple[str, ...]
    residual: str | None
    kernel: str
    selectivity: float | None
    sorted_side: Side = "r"

    def __str__(self) -> str:
        lines = []
        for title, items in (
            ("equal keys", self.equal),
            ("ordered keys", self.ordered),
            ("tested by row", self.tested),
            ("filters first", self.filters),
            ("filters last", (self.residual,) if self.residual else ()),
        ):
            if items:
                lines.append(f"    {title + ':':<15}{'; '.join(items)}")
        lines.append(f"    {'kernel:':<15}{self.kernel}: {_KINDS[self.kernel]}")
        if self.sorted_side == "l" and self.kernel != "overlap":
            lines.append(f"    {'':<15}left rows are sorted, and the right ones look them up")
        if self.selectivity is not None:
            lines.append(
                f"    {'selectivity:':<15}about {self.selectivity:.2g} of all pairs (sample)"
            )
        return "\n".join(lines)


class Printed:
    """What shows itself as the text that it prints, in a console and in a notebook."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True, repr=False)
class Plan(Printed):
    """How a join will be done; prints well."""

    condition: str
    how: str
    window: str
    index: str
    index_reason: str | None
    threads: int
    left_rows: int
    right_rows: int
    parts: tuple[PartPlan, ...]
    # Which units of a streaming join on Spark a row is sent to, and why.
    routing: str | None = None
    # Whose join of tables on Spark it is, thetajoin's or Spark's own, and why.
    engine: str | None = None

    @property
    def estimated_pairs(self) -> int:
        """Pairs that satisfy the condition, the window aside."""
        share = sum(part.selectivity or 0.0 for part in self.parts)
        return round(share * self.left_rows * self.right_rows)

    def with_share(self, share: float) -> Plan:
        """The same with a better estimate of how many pairs match, where there is one number."""
        if len(self.parts) != 1:
            return self
        return replace(self, parts=(replace(self.parts[0], selectivity=share),))

    def without_rows(self) -> Plan:
        """The plan of tables that only their columns are known of."""
        return replace(self, parts=tuple(replace(part, selectivity=None) for part in self.parts))

    def _over(self) -> str:
        """Whose rows the index holds."""
        kinds = {"both" if p.kernel == "overlap" else p.sorted_side for p in self.parts}
        if len(kinds) > 1 or "both" in kinds:
            return "over both sides' rows"
        return f"over the {'left' if kinds == {'l'} else 'right'} side's rows"

    def __str__(self) -> str:
        reason = "" if self.index_reason is None else f" ({self.index_reason})"
        head = [
            f"{self.how} join on {self.condition}",
            f"  window: {self.window}",
            f"  index:  {self.index}{reason} {self._over()}, "
            f"{self.threads} thread{'' if self.threads == 1 else 's'}",
        ]
        if all(part.selectivity is not None for part in self.parts):
            head.append(
                f"  rows:   {self.left_rows:,} left, {self.right_rows:,} right, "
                f"about {self.estimated_pairs:,} pairs before the window"
            )
        else:
            head.append("  rows:   not counted: Spark reads none for a plan")
        if self.engine is not None:
            head.insert(1, f"  engine: {self.engine}")
        if self.routing is not None:
            head.append(f"  routing: {self.routing}")
        for number, part in enumerate(self.parts, 1):
            if len(self.parts) > 1:
                head.append(f"  alternative {number} of {len(self.parts)} (a pair counts in one):")
            head.append(str(part))
        return "\n".join(head)


def make_plan(compiled: CompiledJoin, left: pa.RecordBatch, right: pa.RecordBatch) -> Plan:
    """Plan a join from its compiled form and a sample of both inputs."""
    samples = sample_of(left), sample_of(right)
    parts = tuple(_plan_part(compiled, at, *samples) for at in range(len(compiled.parts)))
    index, reason = explain_index(compiled, left, right)
    return Plan(
        condition=compiled.condition.sql,
        how=compiled.spec.how,
        window=repr(compiled.window),
        index=index,
        index_reason=reason,
        threads=compiled.joiner.threads,
        left_rows=left.num_rows,
        right_rows=right.num_rows,
        parts=parts,
    )


def sample_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """At most `SAMPLE_ROWS` rows of a batch, evenly spaced, in the types that rows are kept in."""
    batch = cast_for_storage(batch, storage_schema(batch.schema))
    if batch.num_rows <= SAMPLE_ROWS:
        return batch
    rows = np.linspace(0, batch.num_rows - 1, SAMPLE_ROWS).astype(np.int64)
    return batch.take(pa.array(rows))


def _plan_part(
    compiled: CompiledJoin, at: int, left: pa.RecordBatch, right: pa.RecordBatch
) -> PartPlan:
    part = compiled.parts[at]
    probes = make_batch(left, "l", (part,), []).parts[0]
    target = make_batch(right, "r", (part,), []).parts[0]
    whole = not isinstance(compiled.window, CountWindow) and len(probes) and len(target)
    plain = LookUp(part, "r", {"l": probes, "r": target})
    found = list(plan_look_ups(part, probes, target)) if whole else [plain]
    kernel = "overlap" if len(found) > 1 else _kernel(found[0])
    pairs = sum(_pairs(look) for look in found)
    share = pairs / (left.num_rows * right.num_rows) if left.num_rows and right.num_rows else 0.0
    source = part.source
    text = [(c.op, f"{c.left.sql()} {c.op} {c.right.sql()}") for c in source.comparisons]
    ordered = [t for op, t in text if op not in ("=", "!=")]
    ordered += [d.check.sql() for d in source.differences]
    filters = [f.sql() for f in (source.left_filter, source.right_filter) if f is not None]
    return PartPlan(
        equal=tuple(t for op, t in text if op == "="),
        ordered=tuple(ordered),
        tested=tuple(t for op, t in text if op == "!="),
        filters=tuple(filters),
        residual=None if source.residual is None else source.residual.sql(),
        kernel=kernel,
        selectivity=share,
        sorted_side=found[0].stored,
    )


def _probe(look: LookUp) -> tuple[PoJoin, Probe]:
    """The index of a look-up's stored side, and what the other side asks of it."""
    view = look.part.views[look.stored]
    rows, probes = look.rows[look.stored], look.rows[OTHER[look.stored]]
    index = PoJoin(view.shape, [rows.keys[key] for key in view.stored], rows.rows)
    return index, Probe(view.intervals(probes.keys), len(probes))


def _kernel(look: LookUp) -> str:
    index, probe = _probe(look)
    return index.drive(probe).kind if index.shape.dims else "nested loop"


def _pairs(look: LookUp) -> int:
    index, probe = _probe(look)
    last = int(look.rows[look.stored].rows.max(initial=-1))
    streams = index.pairs(probe, Arrivals.dense(0, last + 1), room=1 << 16)
    return sum(len(rows) for stream in streams for rows, _ in stream)


@dataclass(frozen=True)
class WayPlan:
    """How one conjunction is answered.

    way: "totals", or "pairs" where the matches are listed chunk by chunk and added up, because of
    `reason`. orders: sorted orders that decide, of which a window may be one.
    """

    way: str
    orders: int
    reason: str

    def __str__(self) -> str:
        if self.way == "pairs":
            return f"    {'aggregates:':<15}join and add up chunk by chunk: {self.reason}"
        lines = [f"    {'aggregates:':<15}without pairs: {_WAYS[self.orders]}"]
        if self.reason:
            lines.append(f"    {'':<15}{self.reason}")
        return "\n".join(lines)


@dataclass(frozen=True, repr=False)
class AggPlan(Printed):
    """How an aggregate over a join will be done; prints well."""

    join: Plan
    groups: tuple[str, ...]
    outputs: tuple[str, ...]
    ways: tuple[WayPlan, ...]
    # Whether a group of the left side is there without a match.
    keeps_left: bool = False

    def with_share(self, share: float) -> AggPlan:
        """As a `Plan` has it."""
        return replace(self, join=self.join.with_share(share))

    def __str__(self) -> str:
        lines = [str(self.join)]
        kept = ", also without a match" if self.keeps_left else ""
        lines.append(f"  group by: {', '.join(self.groups) or 'nothing: one row'}{kept}")
        lines.append(f"  compute:  {', '.join(self.outputs)}")
        for number, way in enumerate(self.ways, 1):
            if len(self.ways) > 1:
                lines.append(f"  alternative {number} of {len(self.ways)}:")
            lines.append(str(way))
        return "\n".join(lines)


def plan_aggregates(aggregator: Aggregator, join: Plan) -> AggPlan:
    """Plan the aggregates of a compiled query."""
    spec = aggregator.spec
    return AggPlan(
        join=join,
        groups=tuple(group.expr.sql() for group in spec.groups),
        outputs=tuple(f"{output.text} AS {output.name}" for output in spec.outputs),
        ways=tuple(_way(aggregator, part) for part in aggregator.join.parts),
        keeps_left=spec.keeps_left,
    )


def _way(aggregator: Aggregator, part: Part) -> WayPlan:
    orders = max(1, _orders(aggregator.join, part))
    if aggregator.needs_pairs:
        return WayPlan("pairs", orders, aggregator.needs_pairs)
    if part.residual is not None:
        return WayPlan("pairs", orders, f"{part.residual} is decided by the pair")
    if orders > MOST_ORDERS:
        reason = f"{orders} keys decide, and only up to {MOST_ORDERS} are answered from totals"
        return WayPlan("pairs", orders, reason)
    if len(aggregator.group_sides) == 2:
        reason = "asked once for each group of one side; joined instead where matches are fewer"
        return WayPlan("totals", orders, reason)
    return WayPlan("totals", orders, "")


def _orders(join: CompiledJoin, part: Part) -> int:
    """Sorted orders in which a probe asks for a range."""
    ordered = sum(not dim.equal for dim in part.views["r"].shape.dims)
    return ordered + isinstance(join.window, CountWindow)


def too_large(
    spec: JoinSpec,
    compiled: CompiledJoin,
    left: pa.RecordBatch,
    right: pa.RecordBatch,
    most: float,
) -> Size | None:
    """The number of a join's pairs, if it is larger than `most`.

    Estimated from samples where these are clear; counted, without listing pairs, where they are not
    and aggregates can do that. None where neither helps: samples know nothing of a window, or of a
    residual that is tested pair by pair.
    """
    if spec.aggs is not None or spec.nearest is not None or spec.how in ("semi", "anti"):
        return None
    plan = make_plan(compiled, left, right)
    if isinstance(compiled.window, FullHistory) and not any(part.residual for part in plan.parts):
        pairs = plan.estimated_pairs
        seen = pairs * _share(left.num_rows) * _share(right.num_rows)
        if SURE * pairs < most:
            return None
        if pairs > SURE * most and seen >= ENOUGH_PAIRS:
            return Size(pairs, exact=False)
    if compiled.options.index not in (AUTO, PO_JOIN):
        return None
    counts = replace(spec, how="inner", aggs={"n": "count(*)"})
    counting = TotalsJoin.of(counts, left.schema, right.schema)
    ways = plan_aggregates(counting.aggregator(), plan).ways
    if any(way.way != "totals" for way in ways):
        return None
    schemas = counting.left_schema, counting.right_schema
    needed = [batch.select(s.names) for batch, s in zip((left, right), schemas, strict=True)]
    counted = result(counting.totals(*needed))["n"][0].as_py()
    return Size(counted, exact=True) if counted > most else None


def _share(rows: int) -> float:
    """The share of a table's rows that is in its sample."""
    return min(1.0, SAMPLE_ROWS / max(1, rows))
