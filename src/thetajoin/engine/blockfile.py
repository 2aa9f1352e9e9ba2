"""Segments as files that any process of a host can map instead of building them again.

A file is a JSON header, the arrays of the index, and the rows as Arrow IPC, aligned so that they
can be used in place, behind the size and the checksum of all of it. It is a cache: what it holds
can always be built again from the rows, so a file that is not as it was written is simply not used.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import uuid
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from thetajoin.engine.block import Block, rows_without_columns
from thetajoin.index.po_join import PoJoin
from thetajoin.index.probe import Arrivals, Shape
from thetajoin.ipc import batch_from_ipc, to_ipc

SUFFIX = ".segment"
_MAGIC = b"tjseg002"
_ALIGN = 64
# Magic, checksum of all that follows it, bytes of the file, bytes of the header.
_PRELUDE = struct.Struct("<8sQQQ")
_CHECKED_FROM = 16


class DamagedError(Exception):
    """A segment's file is not as it was written."""


def write_block(folder: Path, block: Block) -> str:
    """Write a segment, and give its file's name, which has the checksum in it.

    The file appears under its name only when it is whole.
    """
    pieces = _pieces(block)
    size = _PRELUDE.size + sum(len(piece) for piece in pieces)
    checksum = zlib.crc32(_PRELUDE.pack(_MAGIC, 0, size, len(pieces[0]))[_CHECKED_FROM:])
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    name = f"{uuid.uuid4().hex}-{checksum:08x}{SUFFIX}"
    partial = folder / f"{name}.{os.getpid()}"
    try:
        with open(partial, "wb") as file:
            file.write(_PRELUDE.pack(_MAGIC, checksum, size, len(pieces[0])))
            for piece in pieces:
                file.write(piece)
        os.replace(partial, folder / name)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    return name


def _pieces(block: Block) -> list[memoryview]:
    """The header and the arrays, each filled up so that the next one is aligned in the file."""
    arrays: list[Any] = []

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
    contents = [_bytes(array) for array in [*arrays, to_ipc(block.table)]]
    offsets, at = [], 0
    for content in contents:
        offsets.append(at)
        at += len(content) + _gap(len(content))
    header["offsets"], header["rows"] = offsets, block.table.num_rows
    text = json.dumps(header).encode()
    text += b" " * _gap(_PRELUDE.size + len(text))
    pieces = [memoryview(text)]
    for content in contents:
        pieces += [content, memoryview(bytes(_gap(len(content))))]
    return pieces


def _bytes(array: Any) -> memoryview:
    view = memoryview(array)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _gap(size: int) -> int:
    return -size % _ALIGN


def read_block(path: Path, shapes: list[Shape], *, preserved: bool) -> Block:
    """Map a segment's file once it is seen to be whole; some 0.4 ms a MiB the first time."""
    try:
        mapped, header = _checked(path)
        return _block(mapped, header, shapes, preserved)
    except (ValueError, LookupError, TypeError, struct.error) as error:
        raise DamagedError(f"{path.name}: {error}") from error


def _checked(path: Path) -> tuple[mmap.mmap, int]:
    """The mapped file and the size of its header."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    magic, checksum, written, header = _PRELUDE.unpack(mapped[: _PRELUDE.size])
    if magic != _MAGIC or written != size:
        raise ValueError("it has another size or format than it was written with")
    named = path.name.removesuffix(SUFFIX).rpartition("-")[2]
    if named != f"{checksum:08x}" or zlib.crc32(memoryview(mapped)[_CHECKED_FROM:]) != checksum:
        raise ValueError("it has another checksum than it was written with")
    return mapped, header


def _block(mapped: mmap.mmap, length: int, shapes: list[Shape], preserved: bool) -> Block:
    start = _PRELUDE.size + length
    header = json.loads(mapped[_PRELUDE.size : start])

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
    table = batch_from_ipc(rows)
    if not table.num_columns:
        table = rows_without_columns(header["rows"])
    settled = np.zeros(header["rows"], np.bool_) if preserved else None
    arrivals = Arrivals(header["rows"], *(get(array) for array in header["arrivals"]))
    return Block(arrivals, table, indexes, settled, get(header["times"]))
