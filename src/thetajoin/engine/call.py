"""The arguments of a call, as one value on their way from the API to the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from thetajoin.engine.compiled import JoinConfig
from thetajoin.engine.layout import How, parse_how
from thetajoin.engine.nearest import Nearest, nearest_how, nearest_window
from thetajoin.engine.options import Options
from thetajoin.errors import OptionError, WindowError
from thetajoin.window.windows import CountWindow, FullHistory, TimeWindow, Window

NO_WINDOW = (
    "a stream needs a window: TimeWindow('10 minutes', time='ts'), CountWindow(1000) or "
    "FullHistory()"
)


@dataclass(frozen=True)
class JoinCall:
    """What `join`, `self_join`, `join_agg` and `nearest` are given beside their tables.

    Nothing is checked yet, but what makes up `nearest`.
    """

    on: Any
    how: str = "inner"
    window: Window | None = None
    order_by: Any = None
    suffix: str = "_right"
    self_join: bool = False
    group_by: Any = ()
    aggs: Mapping[str, str] | None = None
    nearest: Nearest | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    indicator: str | None = None

    def checked_window(self, *, streaming: bool = False) -> Window:
        """The window; a table without one is taken whole, a stream needs one."""
        if self.window is None and not streaming:
            return FullHistory()
        window = check_window(self.window)
        if self.nearest is None:
            return window
        return nearest_window(window, self.nearest, streaming=False)

    def order(self) -> tuple[str, str] | None:
        """The columns that order the rows of both sides; those of a self-join have one order."""
        pair = check_order(self.order_by)
        if self.self_join and pair is not None and pair[0] != pair[1]:
            raise OptionError(
                f"order_by={self.order_by!r}: the rows of a self-join have one order, so give one "
                "column"
            )
        return pair

    def config(self, left: pa.Schema, right: pa.Schema, *, streaming: bool = False) -> JoinConfig:
        """The join of two schemas that this asks for; refuses arguments that are wrong."""
        return JoinConfig(
            self.on,
            left,
            right,
            how=parse_how(self.how) if self.nearest is None else nearest_how(self.how),
            window=self.checked_window(streaming=streaming),
            order_by=self.order(),
            suffix=self.suffix,
            self_join=self.self_join,
            nearest=self.nearest,
            options=Options.parse(self.options),
            indicator=self.indicator,
        )


def check_window(window: Any) -> Window:
    """The window, or an error that names the choices."""
    if window is None:
        raise WindowError(NO_WINDOW)
    if not isinstance(window, TimeWindow | CountWindow | FullHistory):
        raise WindowError(f"window={window!r} is no window: {NO_WINDOW}")
    return window


def refuse_endless(window: Window, how: How) -> None:
    """Refuse a stream whose unmatched rows would never come."""
    if isinstance(window, FullHistory) and how in ("left", "right", "full", "anti"):
        raise WindowError(
            f"how={how!r} with FullHistory() would never give an unmatched row, since a later "
            "row may always match: use a TimeWindow or a CountWindow"
        )


def check_order(order_by: Any) -> tuple[str, str] | None:
    """One column name for both sides, or one for each."""
    match order_by:
        case None:
            return None
        case str():
            return order_by, order_by
        case (str() as left, str() as right):
            return left, right
    raise OptionError(f"order_by={order_by!r}: give a column name, or a pair, one per side")
