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
    """The window of the join in a FROM: of a clause of the query, or of a job file."""

    frame: Frame
    clause: WindowClause | None
    window: Any

    def columns(self) -> tuple[list[str], list[str]]:
        """Columns that the window reads, of each side."""
        window, order_by = self._given()
        columns: tuple[list[str], list[str]] = [], []
        pairs = [order_by] if order_by is not None else []
        if isinstance(window, TimeWindow):
            pairs.append((window.left_time, window.right_time))
        for pair in pairs:
            both = (pair, pair) if isinstance(pair, str) else pair
            for at in (0, 1):
                item = self.frame.items[at]
                known = item.columns or {}
                if both[at] not in known:
                    raise WindowError(
                        f"the window's column {both[at]!r} is not in {item.name!r}: "
                        f"{suggest(both[at], list(known))}"
                    )
                columns[at].append(both[at])
        return columns

    def _given(self) -> tuple[Window | None, Any]:
        """The window in the tables' own column names, and what orders rows."""
        if self.window is not None:
            window, order_by = self.window
            return window, order_by
        clause = self.clause
        if clause is None:
            return None, None
        names = [column.split(".")[-1] for column in clause.columns]
        pair = (names[0], names[-1]) if names else None
        if clause.size is not None:
            return CountWindow(clause.size, clause.slide), pair
        if pair is None:
            pair = self._time_column(0), self._time_column(1)
        return TimeWindow(clause.length, time=pair), None

    def _time_column(self, at: int) -> str:
        schema = self.frame.items[at].schema
        times = [
            f.name
            for f in schema or ()
            if pa.types.is_timestamp(f.type) or pa.types.is_date(f.type)
        ]
        if len(times) != 1:
            node = self.frame.items[at].node
            raise WindowError(
                f"WITHIN needs to know the time column of {node.alias_or_name!r}, which has "
                f"{len(times) or 'no'} columns with a time: write WITHIN 10 minutes ON ts"
            )
        return str(times[0])

    def renamed(self, left: Relation, right: Relation) -> tuple[Window | None, Any]:
        """The window in the relations' column names."""
        window, order_by = self._given()
        if isinstance(window, TimeWindow):
            times = left.names[0, window.left_time], right.names[1, window.right_time]
            window = replace(window, time=times)
        if order_by is not None:
            pair = (order_by, order_by) if isinstance(order_by, str) else order_by
            order_by = left.names[0, pair[0]], right.names[1, pair[1]]
        return window, order_by
