"""Exact, incremental joins of tables and streams on inequalities.

Names are loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it, without importing typing
if TYPE_CHECKING:
    from typing import Any

    from thetajoin.api import (
        explain,
        join,
        join_agg,
        join_batches,
        nearest,
        self_join,
        self_join_agg,
    )
    from thetajoin.batch.files import csv
    from thetajoin.engine.stream import StreamJoin
    from thetajoin.errors import ThetaJoinError
    from thetajoin.many_inputs import join_many
    from thetajoin.planner.routing import Routing
    from thetajoin.planner.routing_samples import routing
    from thetajoin.predicate import l, r
    from thetajoin.query.run import sql
    from thetajoin.window.windows import CountWindow, FullHistory, TimeWindow

_HOME = {
    "csv": "batch.files",
    "explain": "api",
    "join": "api",
    "join_agg": "api",
    "join_batches": "api",
    "join_many": "many_inputs",
    "nearest": "api",
    "routing": "planner.routing_samples",
    "Routing": "planner.routing",
    "self_join": "api",
    "self_join_agg": "api",
    "sql": "query.run",
    "StreamJoin": "engine.stream",
    "ThetaJoinError": "errors",
    "l": "predicate",
    "r": "predicate",
    "CountWindow": "window.windows",
    "FullHistory": "window.windows",
    "TimeWindow": "window.windows",
}

__all__ = [
    "CountWindow",
    "FullHistory",
    "Routing",
    "StreamJoin",
    "ThetaJoinError",
    "TimeWindow",
    "csv",
    "explain",
    "join",
    "join_agg",
    "join_batches",
    "join_many",
    "l",
    "nearest",
    "r",
    "routing",
    "self_join",
    "self_join_agg",
    "sql",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        import sys

        # With both, Python itself says which name may be meant.
        said = f"module 'thetajoin' has no attribute {name!r}"
        raise AttributeError(said, name=name, obj=sys.modules[__name__])
    from importlib import import_module

    value = getattr(import_module(f"thetajoin.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
