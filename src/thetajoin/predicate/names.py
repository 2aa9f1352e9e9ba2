"""Resolution of names in a condition to columns of the two sides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from thetajoin.errors import nearest
from thetajoin.predicate.categories import categories_of
from thetajoin.predicate.nodes import Column
from thetajoin.predicate.signatures import MismatchError
from thetajoin.predicate.types import canonical, type_name


class Names(Protocol):
    """What tells columns by their names."""

    def resolve(self, parts: list[str]) -> Column:
        """The column that a dotted name means; MismatchError if it means none or several."""


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
            return column_of(alias, schemas[alias], parts[1:], _OWNERS[alias])
        owners = [side for side, schema in schemas.items() if _find(schema.names, parts[0])]
        if len(owners) == 1:
            return column_of(owners[0], schemas[owners[0]], parts, _OWNERS[owners[0]])
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


_OWNERS = {"l": "the left side", "r": "the right side"}


@dataclass(frozen=True)
class ManyScope:
    """The columns a condition over several inputs may name, by the inputs' own names."""

    schemas: Mapping[str, pa.Schema]

    def resolve(self, parts: list[str]) -> Column:
        """The column that a dotted name means: an input's name first, unless only one has it."""
        inputs = {name.lower(): name for name in self.schemas}
        if len(parts) > 1 and parts[0].lower() in inputs:
            name = inputs[parts[0].lower()]
            return column_of(name, self.schemas[name], parts[1:], f"input {name!r}")
        owners = [name for name, schema in self.schemas.items() if _find(schema.names, parts[0])]
        if len(owners) == 1:
            return column_of(owners[0], self.schemas[owners[0]], parts, f"input {owners[0]!r}")
        if owners:
            raise MismatchError(
                f"column {parts[0]!r} is ambiguous: {', '.join(owners)} have it",
                f"write {owners[0]}.{parts[0]}",
            )
        if len(parts) > 1:
            raise MismatchError(
                f"unknown input {parts[0]!r}", f"the inputs are {', '.join(self.schemas)}"
            )
        known = [f"{n}.{c}" for n, schema in self.schemas.items() for c in schema.names]
        raise MismatchError(f"unknown column {parts[0]!r}", nearest(parts[0], known))


def column_of(side: str, schema: pa.Schema, parts: list[str], owner: str) -> Column:
    """A column of one input, or a field inside it."""
    name = _one(schema.names, parts[0], f"of {owner}")
    if schema.names.count(name) > 1:
        raise MismatchError(f"{owner} has several columns {name!r}", "rename one")
    type_: Any = schema.field(name).type
    path: list[str] = []
    for part in parts[1:]:
        if not pa.types.is_struct(type_):
            known = type_name(canonical(type_))
            raise MismatchError(f"{'.'.join([name, *path])} is {known}, so has no field {part!r}")
        fields = [type_.field(i).name for i in range(type_.num_fields)]
        path.append(_one(fields, part, f"in struct {name!r}"))
        type_ = type_.field(path[-1]).type
    categories = categories_of(pa.field(name, type_) if path else schema.field(name))
    return Column(canonical(type_), side, name, tuple(path), categories)


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
