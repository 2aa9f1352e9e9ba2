"""A streaming DataFrame joined with a table: stateless, batch by batch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from thetajoin.batch.tables import contiguous
from thetajoin.engine.core import JoinCore
from thetajoin.engine.spec import Side
from thetajoin.engine.static import StaticJoin
from thetajoin.spark.spec import UnitSpec

_BUILT: OrderedDict[str, StaticJoin] = OrderedDict()


def static_join(df: Any, table: Any, spec: UnitSpec, streaming: Side, output: Any) -> Any:
    """Join the stream `df` with the DataFrame `table`, which is read once, now."""
    schema = spec.schema("right" if streaming == "l" else "left")
    rows = contiguous(table.toArrow().cast(schema), "static")
    StaticJoin(JoinCore(spec.config), streaming, rows.slice(0, 0))  # refuses what cannot be done
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return df.mapInArrow(_prober(spec, streaming, sink.getvalue().to_pybytes()), output)


def _prober(
    spec: UnitSpec, streaming: Side, table: bytes
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def probe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        join = _BUILT.get(spec.label)
        if join is None:
            rows = contiguous(pa.ipc.open_stream(table).read_all(), "static")
            join = _BUILT[spec.label] = StaticJoin(JoinCore(spec.config), streaming, rows)
            while len(_BUILT) > 4:
                _BUILT.popitem(last=False)
        schema = spec.schema("left" if streaming == "l" else "right")
        for batch in batches:
            yield from join.run(pa.Table.from_batches([batch]).cast(schema).to_batches()[0])

    return probe
