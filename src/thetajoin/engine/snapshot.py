"""Snapshots: a header in JSON, rows as Arrow IPC, and a digest over all of it.

Layout: magic, version (2 bytes), header length (8 bytes), header, the Arrow streams that the header
counts, digest (16 bytes of BLAKE2b). Indexes are not written: they are built again from the rows.
`engine.restore` reads it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from thetajoin import __version__
from thetajoin.engine.parts import SIDES
from thetajoin.engine.spec import JoinSpec
from thetajoin.engine.state import JoinState
from thetajoin.ipc import schema_to_bytes, to_ipc

MAGIC = b"thetajoin\x00"
VERSION = 1
DIGEST = 16
HEADER = struct.Struct(">HQ")


@dataclass
class Saved:
    """What a snapshot holds beside the stored rows."""

    spec: JoinSpec
    schemas: dict[str, pa.Schema | None]
    early: list[tuple[str, Any]]
    pending: list[pa.RecordBatch]


class _Writer:
    """Record batches one after another; `put` says where each is."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def put(self, batch: pa.RecordBatch) -> dict[str, int]:
        self.parts.append(to_ipc(batch).to_pybytes())
        return {"part": len(self.parts) - 1, "rows": batch.num_rows}


def write(saved: Saved, state: JoinState | None) -> bytes:
    """Everything as bytes; O(rows held)."""
    writer = _Writer()
    header: dict[str, Any] = {
        "written_by": {"thetajoin": __version__},
        "config": saved.spec.to_dict(),
        "schemas": {
            name: None if s is None else base64.b64encode(schema_to_bytes(s)).decode()
            for name, s in saved.schemas.items()
        },
        "early": [
            [what, _scalar(value, writer) if what == "watermark" else writer.put(value)]
            for what, value in saved.early
        ],
        "owed": [writer.put(batch) for batch in saved.pending],
    }
    if state is not None:
        header["core"] = {
            "watermark": state.watermark,
            "counters": asdict(state.counters),
            "stores": {side: _store(state, side, writer) for side in SIDES},
            "late": {side: [writer.put(b) for b in state.dropped[side]] for side in SIDES},
        }
    header["lengths"] = [len(part) for part in writer.parts]
    text = json.dumps(header).encode()
    body = b"".join([MAGIC, HEADER.pack(VERSION, len(text)), text, *writer.parts])
    return body + hashlib.blake2b(body, digest_size=DIGEST).digest()


def _scalar(value: Any, writer: _Writer) -> dict[str, int]:
    array = (
        pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else pa.array([value])
    )
    return writer.put(pa.RecordBatch.from_arrays([array], names=["watermark"]))


def _store(state: JoinState, side: Any, writer: _Writer) -> dict[str, Any]:
    store = state.stores[side]
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
