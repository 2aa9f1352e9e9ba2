"""Snapshots: a header in JSON, rows as Arrow IPC, and a digest over all of it.

Layout: magic, version (2 bytes), header length (8 bytes), header, the Arrow streams that the header
counts, digest (16 bytes of BLAKE2b). Indexes are not written: they are built again from the rows.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from thetajoin.engine.block import Block, rows_without_columns
from thetajoin.engine.core import SIDES, Counters, JoinCore
from thetajoin.engine.rows import make_batch
from thetajoin.errors import SnapshotError
from thetajoin.index.arrivals import Arrivals

MAGIC = b"thetajoin\x00"
VERSION = 1
_DIGEST = 16
_HEADER = struct.Struct(">HQ")


@dataclass
class Saved:
    """What a snapshot holds beside the stored rows."""

    config: dict[str, Any]
    schemas: dict[str, pa.Schema | None]
    early: list[tuple[str, Any]]
    owed: list[pa.RecordBatch]


class _Writer:
    """Record batches one after another; `put` says where each is."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def put(self, batch: pa.RecordBatch) -> dict[str, int]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        self.parts.append(sink.getvalue().to_pybytes())
        return {"part": len(self.parts) - 1, "rows": batch.num_rows}


class _Reader:
    def __init__(self, data: memoryview, lengths: list[int]) -> None:
        ends = np.cumsum([0, *lengths]).tolist()
        self.parts = [data[a:b] for a, b in pairwise(ends)]

    def get(self, at: dict[str, int]) -> pa.RecordBatch:
        batch = pa.ipc.open_stream(pa.py_buffer(self.parts[at["part"]])).read_next_batch()
        return batch if batch.num_columns else rows_without_columns(at["rows"])


def write(saved: Saved, core: JoinCore | None) -> bytes:
    """Everything as bytes; O(rows held)."""
    writer = _Writer()
    header: dict[str, Any] = {
        "config": saved.config,
        "schemas": {
            name: None if s is None else base64.b64encode(s.serialize().to_pybytes()).decode()
            for name, s in saved.schemas.items()
        },
        "early": [
            [what, _scalar(value, writer) if what == "watermark" else writer.put(value)]
            for what, value in saved.early
        ],
        "owed": [writer.put(batch) for batch in saved.owed],
    }
    if core is not None:
        core.close()
        header["core"] = {
            "watermark": core.watermark,
            "counters": asdict(core.counters),
            "stores": {side: _store(core, side, writer) for side in SIDES},
        }
    header["lengths"] = [len(part) for part in writer.parts]
    text = json.dumps(header).encode()
    body = b"".join([MAGIC, _HEADER.pack(VERSION, len(text)), text, *writer.parts])
    return body + hashlib.blake2b(body, digest_size=_DIGEST).digest()


def _scalar(value: Any, writer: _Writer) -> dict[str, int]:
    array = (
        pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else pa.array([value])
    )
    return writer.put(pa.RecordBatch.from_arrays([array], names=["watermark"]))


def _store(core: JoinCore, side: Any, writer: _Writer) -> dict[str, Any]:
    store = core.stores[side]
    blocks = []
    for block in store.blocks():
        settled = None
        if block.settled is not None:
            flags = pa.RecordBatch.from_arrays([pa.array(block.settled)], names=["settled"])
            settled = writer.put(flags)
        numbers = block.arrivals
        arrivals = {"firsts": numbers.firsts.tolist(), "starts": numbers.starts.tolist()}
        rows = writer.put(block.table)
        blocks.append({"arrivals": arrivals, "rows": rows, "settled": settled})
    return {"count": store.count, "merges": store.merges, "blocks": blocks}


def read(data: bytes) -> tuple[Saved, Callable[[JoinCore], None]]:
    """What was saved, and a function that puts the stored rows into a new core."""
    header, reader = _open(data)
    try:
        saved = Saved(
            config=header["config"],
            schemas={
                name: None if s is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(s)))
                for name, s in header["schemas"].items()
            },
            early=[
                (what, reader.get(at).column(0)[0] if what == "watermark" else reader.get(at))
                for what, at in header["early"]
            ],
            owed=[reader.get(at) for at in header["owed"]],
        )
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise SnapshotError(f"the snapshot's content is not as expected: {error}") from error
    return saved, lambda core: _fill(core, header["core"], reader)


def _open(data: bytes) -> tuple[dict[str, Any], _Reader]:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise SnapshotError(f"a snapshot is bytes, not {type(data).__name__}")
    view = memoryview(data)
    start = len(MAGIC) + _HEADER.size
    if len(view) < len(MAGIC) or bytes(view[: len(MAGIC)]) != MAGIC:
        raise SnapshotError("this is not a thetajoin snapshot: its first bytes are others")
    if len(view) < start + _DIGEST:
        raise SnapshotError("the snapshot is cut short")
    version, length = _HEADER.unpack(view[len(MAGIC) : start])
    if version > VERSION:
        raise SnapshotError(
            f"the snapshot has format {version}, this thetajoin reads up to {VERSION}: update it"
        )
    body, digest = view[:-_DIGEST], bytes(view[-_DIGEST:])
    if hashlib.blake2b(body, digest_size=_DIGEST).digest() != digest:
        raise SnapshotError("the snapshot is damaged: its digest does not fit its content")
    header = json.loads(bytes(view[start : start + length]))
    return header, _Reader(body[start + length :], header["lengths"])


def _fill(core: JoinCore, header: dict[str, Any], reader: _Reader) -> None:
    core.watermark = header["watermark"]
    known = {field.name for field in fields(Counters)}
    core.counters = Counters(**{k: v for k, v in header["counters"].items() if k in known})
    for side in SIDES:
        store, saved = core.stores[side], header["stores"][side]
        for at in saved["blocks"]:
            table = reader.get(at["rows"])
            batch = make_batch(table, side, core.parts, list(table.schema.names))
            times = None if core.clock is None else core.clock.times(table, side)[0]
            numbers = at["arrivals"]
            runs = (np.array(numbers[name], np.int64) for name in ("firsts", "starts"))
            arrivals = Arrivals(table.num_rows, *runs)
            block: Block = store.block_of(batch, times, arrivals=arrivals)
            if at["settled"] is not None:
                block.settled = reader.get(at["settled"]).column(0).to_numpy(zero_copy_only=False)
                block.settled = block.settled.copy()
            store.add(block)
        store.count, store.merges = saved["count"], saved["merges"]
