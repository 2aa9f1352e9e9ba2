"""Forged snapshots, tried in a process of their own: it prints what became of them.

Called with a seed and a number of tries. Each try changes a snapshot at random, computes its digest
anew and restores it; what is restored must take further rows. A line is printed before each try, so
that a crash can be repeated.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import struct
import sys
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

import thetajoin as tj
from thetajoin.errors import SnapshotError

MAGIC = b"thetajoin\x00"
HEADER = struct.Struct(">HQ")


def table(rows: int, first: int) -> pa.Table:
    numbers = range(first, first + rows)
    return pa.table(
        {
            "id": numbers,
            "a": [n % 7 if n % 5 else None for n in numbers],
            "t": [n // 4 for n in numbers],
            "s": [f"text {n % 6}" if n % 3 else None for n in numbers],
            "d": pa.array([Decimal(n) for n in numbers], pa.decimal128(30, 2)),
            "c": pa.array([f"k{n % 3}" for n in numbers]).dictionary_encode(),
            "n": [{"x": n, "y": [n] * (n % 3)} for n in numbers],
            "b": [n % 2 == 0 for n in numbers],
            "f": [n / 3 for n in numbers],
        }
    )


CONDITIONS = [
    "l.a < r.a",
    "l.a <= r.a AND l.f > r.f",
    "l.s < r.s",
    "l.d >= r.d AND l.c = r.c",
    "l.n.x < r.n.x",
    "ABS(l.id - r.id) <= 5",
    "l.a != r.a AND l.b = r.b",
    "l.a + r.a > 5",
]
WINDOWS = [tj.FullHistory(), tj.CountWindow(30, 7), tj.TimeWindow(3, time="t")]
INDEXES = ["auto", "auto", "po_join", "b_plus_tree", "rap_table", "nested_loop"]
HOWS = ["inner", "semi", "left", "full", "anti"]


def joined(rng: random.Random) -> bytes:
    """The snapshot of some join in some state."""
    window = rng.choice(WINDOWS)
    how = rng.choice(HOWS[:2] if isinstance(window, tj.FullHistory) else HOWS)
    on = rng.choice(CONDITIONS)
    index = "auto" if ".s " in on or ".d " in on or "+" in on else rng.choice(INDEXES)
    join = tj.StreamJoin(
        on, how=how, window=window, index=index, head_rows=rng.choice([0, 8, 2048]), threads=1
    )
    join.push(left=table(20, 0))
    if isinstance(window, tj.TimeWindow):
        join.advance(1)
    for at in range(rng.choice([0, 1, 3])):
        join.push(table(25, 40 * at), table(30, 40 * at))
        if isinstance(window, tj.TimeWindow):
            join.advance(3 * at)
    return join.snapshot()


def totalled(rng: random.Random) -> bytes:
    """The snapshot of some totals."""
    totals = tj.StreamJoin(
        rng.choice(CONDITIONS[:4]),
        group_by=rng.choice([(), "l.c", ["l.a", "l.s"]]),
        aggs={"n": "count(*)", "sum": "sum(r.d)", "avg": "avg(r.f)", "max": "max(r.s)"},
        window=tj.FullHistory(),
        left_schema=table(9, 0).schema,
        right_schema=table(9, 0).schema,
        threads=1,
    )
    totals.push(table(25, 0), table(30, 0))
    return totals.snapshot()


def sealed(header: bytes, body: bytes, length: int | None = None) -> bytes:
    """Bytes that look like a snapshot to whoever trusts a digest."""
    content = MAGIC + HEADER.pack(1, len(header) if length is None else length) + header + body
    return content + hashlib.blake2b(content, digest_size=16).digest()


def parts_of(data: bytes) -> tuple[bytes, bytes]:
    start = len(MAGIC) + HEADER.size
    (_, length) = HEADER.unpack(data[len(MAGIC) : start])
    return data[start : start + length], data[start + length : -16]


def flipped(rng: random.Random, data: bytes) -> bytes:
    """Some bytes changed: single bits, numbers, or a run of them."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(changed))
        kind = rng.random()
        if kind < 0.5:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind < 0.8:
            value = rng.choice([0, 1, -1, 2**31 - 1, 2**40, rng.getrandbits(31)])
            changed[at : at + 8] = struct.pack("<q", value)[: len(changed) - at]
        else:
            end = min(len(changed), at + rng.randrange(1, 40))
            changed[at:end] = bytes(rng.choice([0, 255]) for _ in range(end - at))
    return bytes(changed)


def edited(rng: random.Random, header: bytes) -> bytes:
    """The header with values replaced: other numbers, other types, nothing."""
    tree = json.loads(header)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in list(items):
            places.append((node, key))
            if isinstance(value, dict | list):
                walk(value)

    walk(tree)
    for _ in range(rng.choice([1, 1, 2])):
        node, key = rng.choice(places)
        old = node[key]
        if isinstance(old, int) and not isinstance(old, bool) and rng.random() < 0.6:
            node[key] = rng.choice([old + 1, old - 1, -old, old * 1000, 2**31, 2**62, 2**70])
        elif isinstance(old, list) and old and rng.random() < 0.6:
            node[key] = rng.choice([old[::-1], old[:-1], [*old, old[0]], []])
        elif isinstance(old, str) and len(old) > 200 and rng.random() < 0.8:
            written = flipped(rng, base64.b64decode(old))
            node[key] = base64.b64encode(written).decode()
        elif rng.random() < 0.2 and isinstance(node, dict):
            del node[key]
            return json.dumps(tree).encode()
        else:
            junk = [None, True, -1, 2.5, "x", [], {}, [[]], {"part": 0, "rows": 0}, "l.a < r.a"]
            node[key] = rng.choice(junk)
    return json.dumps(tree).encode()


def forged(rng: random.Random, data: bytes) -> bytes:
    header, body = parts_of(data)
    kind = rng.random()
    if kind < 0.5:
        return sealed(header, flipped(rng, body) if body else body)
    if kind < 0.85:
        return sealed(edited(rng, header), body)
    if kind < 0.95:
        return sealed(flipped(rng, header), body)
    cut = rng.randrange(len(body) + 1)
    return rng.choice(
        [
            sealed(header, body[:cut]),
            sealed(header, body[cut:] + body[:cut]),
            sealed(header, body, rng.choice([0, 2**63, len(header) + cut])),
        ]
    )


def tried(data: bytes, restore: Callable[[bytes], Any]) -> str:
    """What became of it: refused, or restored and used."""
    try:
        join = restore(data)
    except SnapshotError as error:
        return said(error, "refused")
    try:
        join.push(table(15, 100), table(15, 100))
        join.push(table(40, 200))
        join.snapshot()
        for finish in ("finish", "result"):
            if hasattr(join, finish):
                getattr(join, finish)()
    except tj.ThetaJoinError as error:
        return said(error, "restored, then refused")
    return "restored"


def said(error: Exception, what: str) -> str:
    return what if "\n" not in str(error) else f"{what} in several lines"


def main(seed: int, tries: int) -> None:
    rng = random.Random(seed)
    originals = [joined(rng) for _ in range(16)], [totalled(rng) for _ in range(3)]
    found: Counter[str] = Counter()
    for number in range(tries):
        sys.stderr.write(f"try {seed} {number}\n")
        rng = random.Random(f"{seed} {number}")
        whole = rng.random() < 0.2
        data = forged(rng, rng.choice(originals[whole]))
        found[tried(data, tj.StreamJoin.restore)] += 1
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
