"""Segments as files that any process of a host can map instead of building them again.

A file is a JSON header, the arrays of the index, and the rows as Arrow IPC, aligned so that they
can be used in place. It is a cache: what it holds can always be built again from the rows.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from thetajoin.engine.block import Block, rows_without_columns
from thetajoin.index.arrivals import Arrivals
from thetajoin.index.po_join import PoJoin
from thetajoin.index.shape import Shape

_ALIGN = 64
_LENGTH = struct.Struct("<Q")


def write_block(path: Path, block: Block) -> None:
    """Write a segment; the file appears under its name only when it is whole."""
    arrays: list[np.ndarray] = []

    def put(array: np.ndarray | None) -> dict[str, Any] | None:
        if array is None:
            return None
        arrays.append(np.ascontiguousarray(array))
        return {"at": len(arrays) - 1, "dtype": array.dtype.str, "shape": list(array.shape)}

    header: dict[str, Any] = {
        "arrivals": [put(block.arrivals.firsts), put(block.arrivals.starts)],
        "times": put(block.times),
        "indexes": [],
    }
    for index in block.indexes:
        assert isinstance(index, PoJoin)
        header["indexes"].append({name: put(array) for name, array in index.arrays().items()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, block.table.schema) as writer:
        writer.write_batch(block.table)
    rows = sink.getvalue()
    offsets, at = [], 0
    for array in [*arrays, rows]:
        offsets.append(at)
        at += -(-(array.nbytes if isinstance(array, np.ndarray) else array.size) // _ALIGN) * _ALIGN
    header["offsets"], header["rows"] = offsets, block.table.num_rows
    text = json.dumps(header).encode()
    start = -(-(_LENGTH.size + len(text)) // _ALIGN) * _ALIGN
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        with open(partial, "wb") as file:
            file.write(_LENGTH.pack(len(text)) + text)
            for array, offset in zip([*arrays, rows], offsets, strict=True):
                file.seek(start + offset)
                file.write(memoryview(array))
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def read_block(path: Path, shapes: list[Shape], *, owes: bool) -> Block:
    """Map a segment's file; its pages are read as they are used."""
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    (length,) = _LENGTH.unpack(mapped[: _LENGTH.size])
    header = json.loads(mapped[_LENGTH.size : _LENGTH.size + length])
    start = -(-(_LENGTH.size + length) // _ALIGN) * _ALIGN

    def get(saved: dict[str, Any] | None) -> Any:
        if saved is None:
            return None
        count = int(np.prod(saved["shape"]))
        offset = start + header["offsets"][saved["at"]]
        if count == 0:
            return np.zeros(saved["shape"], saved["dtype"])
        return np.frombuffer(mapped, saved["dtype"], count, offset).reshape(saved["shape"])

    indexes = [
        PoJoin.from_arrays(shape, {name: get(array) for name, array in saved.items()})
        for shape, saved in zip(shapes, header["indexes"], strict=True)
    ]
    rows = pa.py_buffer(mapped).slice(start + header["offsets"][-1])
    table = pa.ipc.open_stream(rows).read_next_batch()
    if not table.num_columns:
        table = rows_without_columns(header["rows"])
    settled = np.zeros(header["rows"], np.bool_) if owes else None
    arrivals = Arrivals(header["rows"], *(get(array) for array in header["arrivals"]))
    return Block(arrivals, table, indexes, settled, get(header["times"]))
