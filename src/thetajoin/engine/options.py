"""Settings a caller may pass as ``**options``, with their defaults."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from thetajoin.engine.machine import available_cores
from thetajoin.errors import OptionError
from thetajoin.paper_options import PO_JOIN, check_index

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
        thetajoin.errors.OptionError: unknown option 'thread': did you mean 'threads'?
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
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                raise OptionError(f"unknown option {name!r}: {hint}")
        return cls(**given)
