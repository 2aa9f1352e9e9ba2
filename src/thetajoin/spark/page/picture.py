"""What is drawn of a query's plan: its sources, how rows are spread, the join, its sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Drawn:
    """A source: its name, where it is, and whether it grows."""

    name: str
    place: str = ""
    stream: bool = True


@dataclass(frozen=True)
class Picture:
    """A plan as the page draws it; what is not known is left out.

    interval: seconds between micro-batches, where the trigger says so. text: the plan in full.
    """

    title: str = "streaming join"
    query: str = ""
    condition: str = ""
    window: str = ""
    routing: str = ""
    sources: tuple[Drawn, ...] = ()
    sink: str = ""
    interval: float | None = None
    text: str = ""


def picture_of(plan: Any, **known: Any) -> Picture:
    """A picture of what `tj.explain` gives; `known` are further fields.

    >>> import thetajoin as tj, pyarrow as pa
    >>> table = pa.table({"a": [1, 2]})
    >>> picture_of(tj.explain(table, table, "l.a < r.a"), title="pairs").condition
    'inner join on l.a < r.a'
    """
    join = getattr(plan, "join", plan)  # of an aggregate's plan
    return Picture(
        condition=f"{join.how} join on {join.condition}",
        window=join.window,
        routing=join.routing or "",
        text=str(plan),
        **known,
    )
