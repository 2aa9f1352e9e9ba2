"""Segment files: a file that is not as it was written is never used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from thetajoin.engine.block import Block, DamagedError, read_block, write_block
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.spec import JoinSpec
from thetajoin.engine.state import JoinState
from thetajoin.index.probe import Shape

OPTIONS = {"head_rows": 0, "merge": "inline", "index": "po_join"}


def segment(rows: int) -> tuple[Block, list[Shape]]:
    numbers = np.arange(rows)
    table = pa.record_batch({"a": numbers % 7, "s": [f"row {n}" for n in numbers]})
    schemas = table.schema, table.schema
    state = JoinState(CompiledJoin(JoinSpec("l.a < r.a", options=OPTIONS), *schemas))
    list(state.run(table, None))
    return state.stores["l"].segments[0], [part.views["l"].shape for part in state.join.parts]


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    block, shapes = segment(40)
    read = read_block(tmp_path / write_block(tmp_path, block), shapes, preserved=False)
    read._check()
    assert read.table.equals(block.table)


@pytest.mark.parametrize("rows", [40, 400])
def test_no_changed_bit_goes_unseen(tmp_path: Path, rows: int) -> None:
    """Also not in the header's length: behind a header there may be room that nobody misses."""
    block, shapes = segment(rows)
    path = tmp_path / write_block(tmp_path, block)
    whole = path.read_bytes()
    for at in [*range(64), *range(64, len(whole), 501)]:
        for bit in range(8):
            changed = bytearray(whole)
            changed[at] ^= 1 << bit
            path.write_bytes(bytes(changed))
            with pytest.raises(DamagedError):
                read_block(path, shapes, preserved=False)
