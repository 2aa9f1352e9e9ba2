"""Settings of a batch join on Spark that the embedded engine does not have."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from thetajoin.errors import OptionError


@dataclass(frozen=True)
class BatchOptions:
    """How the work is spread; none of these changes the result.

    units: tasks that run at once (default: Spark's parallelism).
    broadcast_rows: a side with at most this many rows is sent whole to every task.
    held_rows: most rows of the held side that a task has in memory.
    """

    units: int | None = None
    broadcast_rows: int = 250_000
    held_rows: int = 4_000_000

    def __post_init__(self) -> None:
        for name, least in (("units", 1), ("broadcast_rows", 0), ("held_rows", 1)):
            value = getattr(self, name)
            if value is None and name == "units":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise OptionError(f"{name}={value!r}: must be a whole number of at least {least}")

    @classmethod
    def take(cls, options: dict[str, Any]) -> BatchOptions:
        """Take these settings out of a call's options, leaving the engine's."""
        known = [field.name for field in fields(cls)]
        return cls(**{name: options.pop(name) for name in known if name in options})
