"""A small table sent whole to every task that reads the other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.held import bounded
from thetajoin.engine.spec import OTHER, Side
from thetajoin.engine.static import StaticJoin
from thetajoin.spark.batch.inputs import Inputs
from thetajoin.spark.batch.table import Whole
from thetajoin.spark.batch.worker import chunks, compiled_of
from thetajoin.spark.spec import UnitSpec

# Rows that probe at once: the more there are, the fewer passes over the small table's keys.
PROBE_ROWS = 1 << 20
_BUILT: OrderedDict[str, StaticJoin] = OrderedDict()


def broadcast_join(
    inputs: Inputs, spec: UnitSpec, streaming: Side, whole: Whole, output: Any
) -> Any:
    """Join with the whole side that does not stream; the other is not shuffled."""
    shown = inputs.shown(CompiledJoin(spec.config))
    return inputs.tables[streaming].mapped(_prober(spec, streaming, whole, shown), output)


def _prober(
    spec: UnitSpec, streaming: Side, whole: Whole, shown: tuple[int, ...] | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def probe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        compiled = compiled_of(spec)
        join = _BUILT.get(spec.label)
        if join is None:
            rows = whole.batch(compiled.given[OTHER[streaming]])
            join = _BUILT[spec.label] = StaticJoin(compiled, streaming, rows)
            while len(_BUILT) > 4:
                _BUILT.popitem(last=False)
        most = compiled.config.options.chunk_rows
        for chunk in chunks(batches, compiled.given[streaming], PROBE_ROWS):
            compiled.joiner = bounded(compiled.joiner, most, join.table, chunk)
            for found in join.run(chunk):
                yield found if shown is None else found.select(list(shown))

    return probe
