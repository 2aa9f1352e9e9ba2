"""A small table sent whole to every task that reads the other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from thetajoin.engine.core import JoinCore
from thetajoin.engine.held import bounded
from thetajoin.engine.spec import OTHER, Side
from thetajoin.engine.static import StaticJoin
from thetajoin.spark.batch.inputs import Inputs
from thetajoin.spark.batch.worker import chunks, core_of, from_blob, gathered, to_blob
from thetajoin.spark.spec import UnitSpec
from thetajoin.spark.tasks import mapped

_BUILT: OrderedDict[str, StaticJoin] = OrderedDict()


def broadcast_join(
    inputs: Inputs, spec: UnitSpec, streaming: Side, table: pa.Table, output: Any
) -> Any:
    """Join with the whole side that does not stream; the other is not shuffled."""
    small = OTHER[streaming]
    core = JoinCore(spec.config)
    rows = gathered(table.to_batches(), core.given[small]) if len(table) else None
    blob = None if rows is None else to_blob(rows).to_pybytes()
    shown = inputs.shown(core)
    return mapped(inputs.frames[streaming], _prober(spec, streaming, blob, shown), output)


def _prober(
    spec: UnitSpec, streaming: Side, blob: bytes | None, shown: tuple[int, ...] | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def probe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        core = core_of(spec)
        join = _BUILT.get(spec.label)
        if join is None:
            given = core.given[OTHER[streaming]]
            rows = pa.RecordBatch.from_pylist([], given) if blob is None else from_blob(blob)[0]
            join = _BUILT[spec.label] = StaticJoin(core, streaming, rows)
            while len(_BUILT) > 4:
                _BUILT.popitem(last=False)
        most = core.config.options.chunk_rows
        for chunk in chunks(batches, core.given[streaming]):
            core.joiner = bounded(core.joiner, most, join.table, chunk)
            for found in join.run(chunk):
                yield found if shown is None else found.select(list(shown))

    return probe
