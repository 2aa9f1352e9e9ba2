"""Spark's state store: versions of each partition's state, and what a task sees of one.

A task works on a copy. What it wrote is a new version only if the task is committed; until the
micro-batch is, the version before it is still there to go back to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Step = Callable[[str], None]


@dataclass
class Saved:
    """One grouping key's state."""

    values: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    maps: dict[str, dict[tuple[Any, ...], tuple[Any, ...]]] = field(default_factory=dict)
    timers: frozenset[int] = frozenset()

    def copy(self) -> Saved:
        """A copy that can be changed; the values themselves never are."""
        maps = {name: dict(entries) for name, entries in self.maps.items()}
        return Saved(dict(self.values), maps, self.timers)


Version = dict[int, Saved]


class Handle:
    """What a stateful processor is given: one task's view of its partition's state.

    `step` is called before each operation, and may raise: the task, or its worker, is then gone.
    """

    def __init__(self, version: Version, watermark: int, step: Step) -> None:
        self.state = {key: saved.copy() for key, saved in version.items()}
        self.watermark = watermark
        self.step = step
        self.key = 0

    @property
    def here(self) -> Saved:
        """The state of the grouping key at work."""
        return self.state.setdefault(self.key, Saved())

    def version(self) -> Version:
        """What the task leaves when it commits."""
        return {key: s for key, s in self.state.items() if s.values or s.timers}

    def getValueState(self, name: str, schema: str) -> ValueState:
        return ValueState(self, name)

    def getMapState(self, name: str, key: str, value: str) -> MapState:
        return MapState(self, name)

    def registerTimer(self, expiry: int) -> None:
        self.step("register timer")
        if expiry <= self.watermark:
            raise ValueError(f"timer {expiry} is not past the watermark {self.watermark}")
        self.here.timers |= {expiry}

    def deleteTimer(self, expiry: int) -> None:
        self.step("delete timer")
        self.here.timers -= {expiry}

    def listTimers(self) -> list[int]:
        return sorted(self.here.timers)

    def expired(self) -> list[tuple[int, int]]:
        """Timers up to the watermark, the earliest first, with their keys."""
        found = [(t, key) for key, s in self.state.items() for t in s.timers if t <= self.watermark]
        return sorted(found)


@dataclass(frozen=True)
class ValueState:
    """A value of the grouping key at work."""

    handle: Handle
    name: str

    def exists(self) -> bool:
        return self.name in self.handle.here.values

    def get(self) -> tuple[Any, ...] | None:
        self.handle.step("read")
        return self.handle.here.values.get(self.name)

    def update(self, value: tuple[Any, ...]) -> None:
        self.handle.step("write")
        self.handle.here.values[self.name] = value

    def clear(self) -> None:
        self.handle.step("write")
        self.handle.here.values.pop(self.name, None)


@dataclass(frozen=True)
class MapState:
    """A map of the grouping key at work."""

    handle: Handle
    name: str

    @property
    def _entries(self) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        return self.handle.here.maps.setdefault(self.name, {})

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        return key in self._entries

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        self.handle.step("read")
        return self._entries.get(key)

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self.handle.step("write")
        self._entries[key] = value

    def removeKey(self, key: tuple[Any, ...]) -> None:
        self.handle.step("write")
        self._entries.pop(key, None)

    def keys(self) -> list[tuple[Any, ...]]:
        return list(self._entries)
