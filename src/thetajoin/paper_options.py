"""The options that name something from a paper: ``index=`` and ``partitioning=``.

`thetajoin.papers` holds those window structures and partitionings. It is imported here, when a
caller names one of them, and nowhere else in the product (import-linter checks that).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from thetajoin.engine.compiled import CompiledJoin
    from thetajoin.engine.store import Store
    from thetajoin.index.probe import Shape
    from thetajoin.papers.auto import Tuner
    from thetajoin.papers.partitionings import Partitioning

# The product's own index, and the name that leaves the choice to a cost model.
PO_JOIN, AUTO = "po_join", "auto"


def check_index(name: Any, options: Mapping[str, Any]) -> None:
    """Refuse an unknown index, and parameters that it does not have."""
    if isinstance(name, str) and name == PO_JOIN and not options:
        return
    from thetajoin.papers import catalog

    catalog.check_name(name, options)


def check_suits(index: str, shapes: Iterable[Shape], condition: str) -> None:
    """Refuse an index that cannot serve a condition's keys."""
    if index == PO_JOIN:
        return
    from thetajoin.papers import catalog

    catalog.check_suits(index, shapes, condition)


def load_live_store() -> type[Store]:
    """What keeps a side's rows in a structure from a paper."""
    from thetajoin.papers.live_store import LiveStore

    return LiveStore


def make_tuner(join: CompiledJoin) -> Tuner | None:
    """What changes a running join's structures: only ``index="auto"`` does."""
    from thetajoin.papers import auto

    return auto.Tuner() if join.options.index == AUTO else None


def explain_index(
    join: CompiledJoin, left: pa.RecordBatch, right: pa.RecordBatch
) -> tuple[str, str | None]:
    """The index that a join of two tables takes, and why."""
    asked = join.options.index
    if asked == PO_JOIN:
        return PO_JOIN, None
    from thetajoin.papers import auto

    return auto.explain_choice(join, left, right)


def find_partitioning(name: str, p: Any, switches: Mapping[str, Any]) -> Partitioning:
    """A paper's partitioning by its name."""
    from thetajoin.papers import partitionings

    return partitionings.find_partitioning(name, p, **switches)


def load_spark_partitionings() -> Any:
    """The module that carries out the papers' partitionings on Spark."""
    from thetajoin.papers import spark_partitionings

    return spark_partitionings
