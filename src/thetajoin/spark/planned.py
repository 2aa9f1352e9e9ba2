"""What is around the joins of streams that a query plans: a job's settings, and who looks on.

A query in SQL comes down to joins in several ways. What a job file or a command says of all of them
reaches them here, and the joins that were planned are told back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from thetajoin.spark.unit_spec import UnitSpec


@dataclass
class Planning:
    """Settings of joins that are being planned, and the joins.

    late: where late rows go. accepts: identities of joins whose state may be gone on with. routing:
    how rows are sent to units, where a join does not say it itself.
    """

    late: str | None = None
    accepts: tuple[dict[str, Any], ...] = ()
    routing: str | None = None
    specs: list[UnitSpec] = field(default_factory=list)


_PLANNING: ContextVar[Planning | None] = ContextVar("thetajoin_planning", default=None)


@contextmanager
def planning(
    late: str | None = None,
    accepts: tuple[dict[str, Any], ...] = (),
    routing: str | None = None,
) -> Iterator[Planning]:
    """Joins of streams that are planned inside have these settings, and are told."""
    current = Planning(late, accepts, routing)
    before = _PLANNING.set(current)
    try:
        yield current
    finally:
        _PLANNING.reset(before)


def surroundings() -> Planning:
    """The settings of a join that is planned now."""
    return _PLANNING.get() or Planning()


def tell(spec: UnitSpec) -> None:
    """A join was planned."""
    current = _PLANNING.get()
    if current is not None:
        current.specs.append(spec)
