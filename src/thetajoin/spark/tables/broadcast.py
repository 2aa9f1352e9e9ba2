"""A small table sent whole to every task that reads the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from thetajoin.engine.compiled import Beside
from thetajoin.engine.parts import OTHER, Side
from thetajoin.spark.remembered import Remembered
from thetajoin.spark.tables.inputs import Inputs
from thetajoin.spark.tables.table import Whole
from thetajoin.spark.tables.worker import chunks
from thetajoin.spark.unit_spec import UnitSpec, compiled_of

# Rows that probe at once: the more there are, the fewer passes over the small table's keys.
PROBE_ROWS = 1 << 20
_BUILT: Remembered[Beside] = Remembered(4)


def broadcast_join(
    inputs: Inputs,
    spec: UnitSpec,
    streaming: Side,
    whole: Whole,
    output: Any,
    shown: tuple[int, ...] | None,
) -> Any:
    """Join with the whole side that does not stream; the other is not shuffled.

    shown: positions of the output columns that are the user's, where others are among them.
    """
    return inputs.tables[streaming].mapped(_prober(spec, streaming, whole, shown), output)


def _built(label: str, make: Callable[[], Beside]) -> Beside:
    # A function of this module's, which a task finds by its name: its memory is the worker's own.
    return _BUILT.made(label, make)


def _prober(
    spec: UnitSpec, streaming: Side, whole: Whole, shown: tuple[int, ...] | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def probe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        compiled = compiled_of(spec)

        def made() -> Beside:
            rows = whole.batch(compiled.given[OTHER[streaming]])
            return compiled.put_beside(streaming, rows)

        join = _built(spec.label, made)
        for chunk in chunks(batches, compiled.given[streaming], PROBE_ROWS):
            for found in join.run(chunk):
                yield found if shown is None else found.select(list(shown))

    return probe
