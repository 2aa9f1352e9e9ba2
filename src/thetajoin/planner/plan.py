"""The plan of a join: its condition's normal form, its keys, and what a sample says of the cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, Side
from thetajoin.engine.rows import cast_for_storage, make_batch, storage_schema
from thetajoin.engine.tables import LookUp, plan_look_ups
from thetajoin.index.po_join import PoJoin
from thetajoin.index.probe import Arrivals, Probe
from thetajoin.paper_options import explain_index
from thetajoin.window.windows import CountWindow

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


@dataclass(frozen=True)
class PartPlan:
    """One conjunction of the condition.

    kernel: "ranges", "scan", "bitmap", "overlap" or "nested loop", as chosen for the sample; a
    stream chooses again for every batch and segment, and sees no overlaps. sorted_side: whose rows
    are sorted for the other's to look up. selectivity: share of all pairs that match, estimated.
    """

    equal: tuple[str, ...]
    ordered: tuple[str, ...]
    tested: tuple[str, ...]
    filters: tuple[str, ...]
    residual: str | None
    kernel: str
    selectivity: float
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
        lines.append(f"    {'selectivity:':<15}about {self.selectivity:.2g} of all pairs (sample)")
        return "\n".join(lines)


@dataclass(frozen=True)
class Plan:
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
        share = sum(part.selectivity for part in self.parts)
        return round(share * self.left_rows * self.right_rows)

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
            f"  rows:   {self.left_rows:,} left, {self.right_rows:,} right, "
            f"about {self.estimated_pairs:,} pairs before the window",
        ]
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
    samples = sample_of(left, SAMPLE_ROWS), sample_of(right, SAMPLE_ROWS)
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


def sample_of(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    """At most `number` rows of a batch, evenly spaced, in the types that rows are kept in."""
    batch = cast_for_storage(batch, storage_schema(batch.schema))
    if batch.num_rows <= number:
        return batch
    rows = np.linspace(0, batch.num_rows - 1, number).astype(np.int64)
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


def _probed(look: LookUp) -> tuple[PoJoin, Probe]:
    """The index of a look-up's stored side, and what the other side asks of it."""
    view = look.part.views[look.stored]
    rows, probes = look.rows[look.stored], look.rows[OTHER[look.stored]]
    index = PoJoin(view.shape, [rows.keys[key] for key in view.stored], rows.rows)
    return index, Probe(view.intervals(probes.keys), len(probes))


def _kernel(look: LookUp) -> str:
    index, probe = _probed(look)
    return index.drive(probe).kind if index.shape.dims else "nested loop"


def _pairs(look: LookUp) -> int:
    index, probe = _probed(look)
    last = int(look.rows[look.stored].rows.max(initial=-1))
    streams = index.pairs(probe, Arrivals.dense(0, last + 1), room=1 << 16)
    return sum(len(rows) for stream in streams for rows, _ in stream)
