"""Resolution of names in a condition to columns of the two sides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from thetajoin.errors import nearest
from thetajoin.predicate.nodes import Column
from thetajoin.predicate.signatures import MismatchError
from thetajoin.predicate.types import canonical, type_name


@dataclass(frozen=True)
class Scope:
    """The columns a condition may name: those of `l` and those of `r`."""

    left: pa.Schema
    right: pa.Schema

    def resolve(self, parts: list[str]) -> Column:
        """The column that a dotted name means: exact case first, then any case if that is unique.

        >>> Scope(pa.schema({"A": pa.int8()}), pa.schema({})).resolve(["l", "a"]).name
        'A'
        """
        schemas = {"l": self.left, "r": self.right}
        alias = parts[0].lower()
        if len(parts) > 1 and alias in schemas:
            return self._column(alias, schemas[alias], parts[1:])
        owners = [side for side, schema in schemas.items() if _find(schema.names, parts[0])]
        if len(owners) == 1:
            return self._column(owners[0], schemas[owners[0]], parts)
        if len(owners) == 2:
            name = parts[0]
            raise MismatchError(
                f"column {name!r} is ambiguous: both sides have it", f"write l.{name} or r.{name}"
            )
        if len(parts) > 1:
            raise MismatchError(
                f"unknown alias {parts[0]!r}", "only l (left) and r (right) are known"
            )
        known = [f"{side}.{name}" for side, schema in schemas.items() for name in schema.names]
        close = nearest(parts[0], [*self.left.names, *self.right.names])
        hint = close if close.startswith("did you") else nearest(parts[0], known)
        raise MismatchError(f"unknown column {parts[0]!r}", hint)

    def _column(self, side: str, schema: pa.Schema, parts: list[str]) -> Column:
        owner = "left" if side == "l" else "right"
        name = self._one(schema.names, parts[0], f"of the {owner} side")
        if schema.names.count(name) > 1:
            raise MismatchError(f"the {owner} side has several columns {name!r}", "rename one")
        type_: Any = schema.field(name).type
        path: list[str] = []
        for part in parts[1:]:
            if not pa.types.is_struct(type_):
                known = type_name(canonical(type_))
                raise MismatchError(
                    f"{'.'.join([name, *path])} is {known}, so has no field {part!r}"
                )
            fields = [type_.field(i).name for i in range(type_.num_fields)]
            path.append(self._one(fields, part, f"in struct {name!r}"))
            type_ = type_.field(path[-1]).type
        return Column(canonical(type_), side, name, tuple(path))

    @staticmethod
    def _one(names: Iterable[str], name: str, where: str) -> str:
        found = _find(names, name)
        if not found:
            raise MismatchError(f"unknown column {name!r} {where}", nearest(name, names))
        if len(found) > 1:
            raise MismatchError(
                f"column {name!r} {where} is ambiguous", f"write one of {', '.join(found)}"
            )
        return found[0]


def _find(names: Iterable[str], name: str) -> list[str]:
    known = list(dict.fromkeys(names))
    if name in known:
        return [name]
    return [other for other in known if other.lower() == name.lower()]
