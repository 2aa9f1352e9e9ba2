"""Change feeds, which are not streams of rows: an update or a delete takes back a row from before.

A join of streams cannot take back what it has given out. So a stream whose columns show that it is
a change feed is refused, unless whoever joins it has looked at that column, or has dropped it.
"""

from __future__ import annotations

import re
from typing import Any

from thetajoin.errors import SchemaError

# A column that tells, whose feed it is, and how to keep the rows that are new.
FEEDS = (
    ("_change_type", "Delta's or Iceberg's", ".where(\"_change_type = 'insert'\")"),
    ("__op", "Debezium's", ".where(\"__op IN ('c', 'r')\")"),
    ("__deleted", "Debezium's", ".where(\"__deleted = 'false'\")"),
)
ENVELOPE = {"op", "before", "after"}


def refuse_change_feed(frame: Any, what: str, said: str = "") -> None:
    """Refuse a streaming DataFrame that is a change feed; `said`: the condition or query over it.

    A condition that names the telling column, such as ``l._change_type = 'insert'``, is answer
    enough.
    """
    if not frame.isStreaming:
        return
    columns = {name.lower(): name for name in frame.columns}
    for telling, whose, inserts in FEEDS:
        if telling in columns and not re.search(rf"\b{telling}\b", said, re.IGNORECASE):
            raise _refusal(what, whose, columns[telling], f"{inserts}.drop({columns[telling]!r})")
    for at, names in _structs(frame, columns):
        if names >= ENVELOPE and not re.search(r"\b(op|after)\b", said, re.IGNORECASE):
            op = f"{at}op" if at else "op"
            inserts = f".where(\"{op} IN ('c', 'r')\").select('{at}after.*')"
            raise _refusal(what, "Debezium's", op, inserts)


def _structs(frame: Any, columns: dict[str, str]) -> list[tuple[str, set[str]]]:
    """The frame's own columns, and those of its structs."""
    found = [("", set(columns))]
    for field in frame.schema.fields:
        inside = getattr(field.dataType, "names", None)
        if inside:
            found.append((f"{field.name}.", {name.lower() for name in inside}))
    return found


def _refusal(what: str, whose: str, column: str, inserts: str) -> SchemaError:
    return SchemaError(
        f"{what} is a change feed, {whose} (its column {column!r}): a join of streams cannot take "
        f"back what an update or a delete changes. Join the new rows alone, {inserts}, or join the "
        "table itself, in foreachBatch. To have every change taken as a row of its own, drop that "
        "column"
    )
