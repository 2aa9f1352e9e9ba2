"""What a call is, as one value: from the API down to the engine and into snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from os import PathLike
from typing import Any, Literal, TypedDict

from thetajoin.engine.layout import How, check_suffix, parse_how
from thetajoin.engine.machine import available_cores
from thetajoin.engine.nearest import Nearest, nearest_from_dict, nearest_how, nearest_window
from thetajoin.errors import OptionError, UnknownOptionError, WindowError
from thetajoin.paper_options import PO_JOIN, check_index
from thetajoin.predicate import condition_text
from thetajoin.window.windows import (
    CountWindow,
    FullHistory,
    TimeWindow,
    Window,
    window_from_dict,
)

TotalsHow = Literal["inner", "left"]


class JoinOptions(TypedDict, total=False):
    """How a call is run, as type checkers know it: `Options`, and what only Spark has."""

    threads: int
    chunk_rows: int
    head_rows: int
    merge: Literal["background", "inline"]
    index: str
    index_options: dict[str, Any]
    check_memory: bool
    progress: bool | None
    # of tables and streams on Spark
    engine: Literal["auto", "thetajoin", "spark"]
    units: int
    routing: Any
    late: str | PathLike[str] | None
    migrated: str | PathLike[str]
    broadcast_rows: int
    held_rows: int
    partitioning: str
    p: int
    pre_filter: bool
    amalgamate: bool
    split_oversized: bool
    partition_filter: bool
    observe: Any


NO_WINDOW = (
    "a stream needs a window: TimeWindow('10 minutes', time='ts'), CountWindow(1000) or "
    "FullHistory()"
)


@dataclass(frozen=True)
class JoinSpec:
    """Everything about a call except its inputs: made by the API, handed down unchanged.

    group_by, aggs: where totals of the matches are asked for, and not the matches. window: None
    where none was given. options: as given; an engine takes those that are its own.
    """

    on: Any = None
    how: How = "inner"
    window: Window | None = None
    order_by: tuple[str, str] | None = None
    suffix: str = "_right"
    self_join: bool = False
    nearest: Nearest | None = None
    group_by: Any = ()
    aggs: Mapping[str, str] | None = None
    indicator: str | None = None
    keep_late: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        on: Any,
        how: str = "inner",
        window: Any = None,
        order_by: Any = None,
        suffix: Any = "_right",
        *,
        nearest: Nearest | None = None,
        group_by: Any = (),
        aggs: Mapping[str, str] | None = None,
        keep_late: Any = False,
        **more: Any,
    ) -> JoinSpec:
        """From a caller's arguments; refuses what would be wrong for any inputs.

        more: other fields, whose values depend on the inputs' columns.
        """
        if window is not None:
            window = check_window(window)
            if nearest is not None:
                window = nearest_window(window, nearest, streaming=False)
        if aggs is not None:
            kind: How = totals_how(how)
            if more.get("indicator") is not None:
                raise OptionError(
                    f"indicator={more['indicator']!r} is for rows: leave it out beside aggs"
                )
        else:
            kind = parse_how(how) if nearest is None else nearest_how(how)
            if not isinstance(group_by, str | Sequence | Mapping) or group_by:
                raise OptionError(
                    f"group_by={group_by!r} goes with aggs, such as aggs={{'n': 'count(*)'}}"
                )
        order = check_order(order_by)
        if more.get("self_join") and order is not None and order[0] != order[1]:
            raise OptionError(
                f"order_by={order_by!r}: the rows of a self-join have one order, so give one column"
            )
        return cls(
            on,
            kind,
            window,
            order,
            check_suffix(suffix),
            nearest=nearest,
            group_by=group_by,
            aggs=aggs,
            keep_late=check_keep_late(keep_late),
            **more,
        )

    def for_stream(self) -> JoinSpec:
        """The same spec for two streams; refuses what would keep rows for ever."""
        window = check_window(self.window)
        if self.nearest is not None:
            window = nearest_window(window, self.nearest, streaming=True)
        if self.aggs is None:
            refuse_endless(window, self.how)
        elif self.keep_late:
            raise OptionError("keep_late=True sets rows aside: leave it out beside aggs")
        elif self.nearest is not None:
            raise OptionError("nearest with aggs is for tables: group what the stream gives")
        if self.keep_late and not isinstance(window, TimeWindow):
            raise OptionError("keep_late=True needs a TimeWindow: without one, no row is ever late")
        return replace(self, window=window)

    def to_dict(self) -> dict[str, Any]:
        """As values that JSON can hold; `from_dict` reads it back."""
        found = {
            "on": "" if self.on is None else condition_text(self.on),
            "how": self.how,
            "window": None if self.window is None else self.window.to_dict(),
            "order_by": self.order_by,
            "suffix": self.suffix,
            "nearest": None if self.nearest is None else self.nearest.to_dict(),
            "indicator": self.indicator,
            "keep_late": self.keep_late,
            "options": asdict(Options.parse(self.options)),
        }
        if self.self_join:
            found["self_join"] = True
        if self.aggs is not None:
            found |= {"group_by": self.group_by, "aggs": dict(self.aggs)}
        return found

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> JoinSpec:
        """What `to_dict` wrote, in this version or an older one."""
        window, nearest = saved["window"], saved.get("nearest")
        return cls.of(
            saved["on"] or None,
            saved.get("how", "inner"),
            None if window is None else window_from_dict(window),
            saved["order_by"],
            saved.get("suffix", "_right"),
            nearest=None if nearest is None else nearest_from_dict(nearest),
            aggs=saved.get("aggs"),
            self_join=bool(saved.get("self_join", False)),
            group_by=saved.get("group_by", ()),
            indicator=saved.get("indicator"),
            keep_late=saved.get("keep_late", False),
            options=saved["options"],
        )


def totals_how(how: str) -> TotalsHow:
    """What to do with unmatched left rows: the only ones that have a group."""
    with suppress(OptionError):
        known = parse_how(how)
        if known == "inner" or known == "left":
            return known
    raise OptionError(f"how={how!r}: aggregates over a join take how='inner' or how='left'")


def check_keep_late(keep_late: object) -> bool:
    """Whether late rows are to be kept."""
    if not isinstance(keep_late, bool):
        raise OptionError(f"keep_late={keep_late!r}: must be True or False")
    return keep_late


def check_window(window: Any) -> Window:
    """The window, or an error that names the choices."""
    if window is None:
        raise WindowError(NO_WINDOW)
    if not isinstance(window, TimeWindow | CountWindow | FullHistory):
        raise WindowError(f"window={window!r} is not a window: {NO_WINDOW}")
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


# The least and the largest value of each number. Positions of rows are 32 bits wide.
_LIMITS = {"threads": (0, 4096), "chunk_rows": (64, 2**31 - 1), "head_rows": (0, 2**24)}


@dataclass(frozen=True)
class Options:
    """How a join is run; none of these changes its result.

    threads: threads that probe (default: every core this process may use).
    chunk_rows: most rows in one output batch.
    head_rows: rows the mutable head may hold before it becomes a segment.
    merge: "background", or "inline" to merge segments inside `push`.
    index: the window structure: "po_join", or another by its paper's name (`docs/structures.md`).
    index_options: the structure's parameters under their paper's names.
    check_memory: refuse a result of `join` that will not fit into memory before it is built.
    """

    threads: int = 0
    chunk_rows: int = 1 << 17
    head_rows: int = 2048
    merge: str = "background"
    index: str = PO_JOIN
    index_options: dict[str, Any] = field(default_factory=dict)
    check_memory: bool = True

    def __post_init__(self) -> None:
        for name, (least, most) in _LIMITS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise OptionError(f"{name}={value!r}: must be a whole number of at least {least}")
            if value > most:
                raise OptionError(f"{name}={value!r}: must be at most {most}")
        merge: Any = self.merge
        if not isinstance(merge, str) or merge not in ("background", "inline"):
            raise OptionError(f"merge={merge!r}: must be 'background' or 'inline'")
        check_memory: Any = self.check_memory
        if not isinstance(check_memory, bool):
            raise OptionError(f"check_memory={check_memory!r}: must be True or False")
        if not isinstance(self.index_options, dict):
            raise OptionError(f"index_options={self.index_options!r}: give a dictionary")
        check_index(self.index, self.index_options)

    @property
    def workers(self) -> int:
        """Threads to use."""
        return self.threads or available_cores()

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Options:
        """Check names and values.

        >>> Options.parse({"thread": 2})
        Traceback (most recent call last):
        thetajoin.errors.UnknownOptionError: unknown option 'thread': did you mean 'threads'?
        """
        known = [option.name for option in fields(cls)]
        for name in given:
            if name == "engine":
                raise OptionError("engine= goes with join of two Spark tables: leave it out here")
            if name in ("late", "migrated"):
                raise OptionError(
                    f"{name}= goes with a join of two Spark streams: leave it out here"
                )
            if name not in known:
                raise UnknownOptionError.of(name, known)
        return cls(**given)
