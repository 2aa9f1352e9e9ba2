"""The call that a query comes down to, and what is done with its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thetajoin.api import explain, is_spark, join, join_agg
from thetajoin.batch.tables import from_table
from thetajoin.query.after import After


@dataclass(frozen=True)
class Relation:
    """Rows of one or more of the query's tables; `names` has the column of each (alias, name)."""

    table: Any
    names: dict[tuple[str, str], str]


@dataclass(frozen=True)
class Call:
    """The last call a query comes down to, and what is done with its result."""

    left: Relation
    right: Relation
    arguments: dict[str, Any]
    aggregated: bool
    after: After
    kind: Any

    def run(self) -> Any:
        """Call `join` or `join_agg`, then project."""
        call = join_agg if self.aggregated else join
        found = call(self.left.table, self.right.table, **self.arguments)
        made = self.after.apply(found)
        return made if is_spark(made) else from_table(made, self.kind)

    def explain(self) -> Any:
        """The plan of that call."""
        return explain(self.left.table, self.right.table, **self.arguments)
