"""The window of a query in terms of its two tables' columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from thetajoin.errors import WindowError, suggest
from thetajoin.query.frames import Frame
from thetajoin.query.join import Relation
from thetajoin.query.text import WindowClause
from thetajoin.window.windows import CountWindow, TimeWindow, Window


@dataclass(frozen=True)
class QueryWindow:
    """The window of the join in a FROM, if it has one, and what orders rows."""

    window: Window | None = None
    order_by: tuple[str, str] | None = None

    def columns(self) -> list[tuple[str, str]]:
        """Columns that it reads, one of each side."""
        found = [self.order_by] if self.order_by is not None else []
        if isinstance(self.window, TimeWindow):
            found.insert(0, (self.window.left_time, self.window.right_time))
        return found

    def renamed(self, left: Relation, right: Relation) -> tuple[Window | None, Any]:
        """The same in the relations' column names."""
        renamed = [(left.names[0, one], right.names[1, other]) for one, other in self.columns()]
        window, order_by = self.window, self.order_by
        if order_by is not None:
            order_by = renamed[-1]
        if isinstance(window, TimeWindow):
            window = replace(window, time=renamed[0])
        return window, order_by


def read_window(frame: Frame, clause: WindowClause | None, given: Any) -> QueryWindow:
    """The window of a clause of the query, or of a job file, over what stands in a FROM."""
    if len(frame.items) > 2:
        raise WindowError("a window is for a query of two tables, and this one has more")
    window, order_by = given or (None, None)
    if clause is not None:
        names = [column.split(".")[-1] for column in clause.columns]
        pair = (names[0], names[-1]) if names else None
        if clause.size is not None:
            window, order_by = CountWindow(clause.size, clause.slide), pair
        else:
            pair = pair or (_time_column(frame, 0), _time_column(frame, 1))
            window = TimeWindow(clause.length, time=pair)
    if isinstance(order_by, str):
        order_by = order_by, order_by
    found = QueryWindow(window, order_by)
    for pair in found.columns():
        for name, item in zip(pair, frame.items, strict=True):
            if name not in (item.columns or {}):
                raise WindowError(
                    f"the window's column {name!r} is not in {item.name!r}: "
                    f"{suggest(name, list(item.columns or {}))}"
                )
    return found


def _time_column(frame: Frame, at: int) -> str:
    schema = frame.items[at].schema
    times = [
        f.name for f in schema or () if pa.types.is_timestamp(f.type) or pa.types.is_date(f.type)
    ]
    if len(times) != 1:
        raise WindowError(
            f"WITHIN needs to know the time column of {frame.items[at].node.alias_or_name!r}, "
            f"which has {len(times) or 'no'} columns with a time: write WITHIN 10 minutes ON ts"
        )
    return str(times[0])
