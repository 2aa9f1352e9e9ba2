"""Evaluation of bound expressions on Arrow tables, with Spark's ANSI meaning.

AND, OR, CASE and COALESCE are lazy as in Spark: an operand that could fail (a division, a cast) is
computed only for the rows that reach it, so ``r.x != 0 AND l.a / r.x > 2`` never divides by zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.types as t

from thetajoin.errors import DataError, SchemaError
from thetajoin.predicate import scalars
from thetajoin.predicate.casts import cast
from thetajoin.predicate.functions import FUNCTIONS
from thetajoin.predicate.nodes import (
    COARSENED,
    COMPARISONS,
    Call,
    Cast,
    Column,
    Expr,
    Literal,
    Place,
    conjunction,
    disjunction,
)
from thetajoin.predicate.operators import (
    Array,
    apply,
    coarsen,
    compare,
    pc,
    repeat_value,
    same,
    spread,
)
from thetajoin.predicate.types import BOOL, NULL, canonical_type, is_number

Rows: TypeAlias = pa.Table | pa.RecordBatch

_ARITHMETIC = ("+", "-", "*", "/", "%", "div", "neg", "abs", "&", "|", "^", "~")
_NEVER_FAIL = (*COMPARISONS, "<=>", "and", "or", "not", "isnull", "isnotnull", "in", "case")


def evaluate(expr: Expr, left: Rows | None = None, right: Rows | None = None) -> Array:
    """The expression's value for each row, as one array; O(rows) for each node.

    With both sides given, row i of the left goes with row i of the right. Without a side (a
    constant) there is one row.

    >>> from thetajoin.predicate.nodes import Column
    >>> evaluate(Column(pa.int64(), "l", "a"), left=pa.table({"a": [1, None]})).to_pylist()
    [1, None]
    """
    sizes = {rows.num_rows for rows in (left, right) if rows is not None}
    if len(sizes) > 1:
        raise SchemaError(f"the sides of a pair differ in length: {sorted(sizes)}")
    return _evaluate(expr, _Env(left, right, sizes.pop() if sizes else 1))


class _Env:
    """The rows an expression is evaluated on; columns are read once, and filtered lazily."""

    def __init__(
        self,
        left: Rows | None,
        right: Rows | None,
        size: int,
        parent: _Env | None = None,
        mask: Array | None = None,
    ) -> None:
        self.tables = {"l": left, "r": right}
        self.size = size
        self.parent = parent
        self.mask = mask
        self.cache: dict[Column, Array] = {}

    def where(self, mask: Array) -> _Env:
        size = pc.sum(mask.cast(pa.int64())).as_py() or 0
        return _Env(None, None, size, self, mask)

    def column(self, column: Column) -> Array:
        if column not in self.cache:
            if self.parent is not None:
                assert self.mask is not None
                self.cache[column] = self.parent.column(column).filter(self.mask)
            else:
                self.cache[column] = _read(column, self.tables[column.side])
        return self.cache[column]


def _read(column: Column, rows: Rows | None) -> Array:
    if rows is None:
        raise SchemaError(f"{column.sql()} is needed, but no rows of that side are given")
    if rows.schema.names.count(column.name) != 1:
        raise SchemaError(
            f"the rows have no column {column.name!r}, or several, for {column.sql()}"
        )
    found: Any = rows.column(column.name)
    for field in column.path:
        found = pc.struct_field(found, field)
    return plain(found, column.type)


def plain(found: Any, type_: pa.DataType) -> Array:
    """A stored column as one array of its canonical type: no chunks, dictionaries or views."""
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)
    if isinstance(found.type, pa.BaseExtensionType):
        storage = canonical_type(found.type)
        found = found.cast(found.type.storage_type) if storage != found.type else found
    if isinstance(found.type, pa.RunEndEncodedType):
        found = pc.run_end_decode(found)
    if isinstance(found.type, pa.DictionaryType) and pa.types.is_nested(found.type.value_type):
        found = found.dictionary_decode()
    if found.type != type_:
        if canonical_type(found.type) != type_:
            raise SchemaError(f"a column of type {found.type} came where {type_} was declared")
        # date64 may carry a time of day that date32 drops
        found = found.cast(type_, safe=not t.is_date64(found.type))
    return found


def _evaluate(expr: Expr, env: _Env) -> Array:
    if isinstance(expr, Column):
        return env.column(expr)
    if isinstance(expr, Literal):
        return repeat_value(expr.value, expr.type, env.size)
    if isinstance(expr, Place):
        assert expr.categories is not None
        return expr.categories.places(_evaluate(expr.arg, env))
    if isinstance(expr, Cast):
        values = _evaluate(expr.arg, env)
        with _naming(expr, "TRY_CAST gives NULL for such values"):
            return cast(values, expr.type, lenient=expr.lenient)
    assert isinstance(expr, Call)
    name = expr.name
    if name in ("and", "or"):
        return _logical(expr, env, stops_at=name == "or")
    if name == "case":
        return _case(expr, env)
    if name == "coalesce":
        return _coalesce(expr, env)
    values = [_evaluate(arg, env) for arg in expr.args]
    with _naming(expr):
        return _run(expr, values)


@contextmanager
def _naming(expr: Expr, hint: str = "") -> Iterator[None]:
    """Say in which part of the condition a value could not be computed."""
    try:
        yield
    except DataError as error:
        more = f"; {hint}" if hint else ""
        raise DataError(
            f"in `{expr.sql(explicit=isinstance(expr, Cast))}`: {error}{more}"
        ) from None


def _run(call: Call, args: list[Array]) -> Array:
    name = call.name
    if call.type == NULL:
        return args[0]
    if name in COMPARISONS:
        return compare(name, *args)
    if name in _ARITHMETIC:
        return apply(name, args, call.type)
    if name.startswith(COARSENED):
        return coarsen(name.removeprefix(COARSENED), args[0], call.type)
    if name == "not":
        return pc.invert(args[0])
    if name == "<=>":
        return same(*args)
    if name == "in":
        return _in(args)
    if name == "like":
        return scalars.like(args, call.type)
    run = FUNCTIONS[name].run
    assert run is not None, name
    return run(args, call.type)


def _in(args: list[Array]) -> Array:
    """Whether it equals one of the others; NULL if it does not, but one of them is NULL."""
    found = repeat_value(False, BOOL, len(args[0]))
    for other in args[1:]:
        found = pc.or_kleene(found, compare("=", args[0], other))
    return found


def _can_fail(expr: Expr) -> bool:
    return any(
        (isinstance(node, Call) and node.name not in _NEVER_FAIL)
        or (isinstance(node, Cast) and not (node.implicit and is_number(node.arg.type)))
        for node in expr.walk()
    )


def _evaluate_where(expr: Expr, env: _Env, mask: Array) -> Array:
    """The value for the rows where the mask is true, NULL elsewhere (or whatever is cheap)."""
    if not _can_fail(expr) or pc.all(mask, min_count=0).as_py():
        return _evaluate(expr, env)
    return spread(_evaluate(expr, env.where(mask)), mask)


def _logical(call: Call, env: _Env, *, stops_at: bool) -> Array:
    combine = pc.or_kleene if stops_at else pc.and_kleene
    result = _evaluate(call.args[0], env)
    for arg in call.args[1:]:
        open_rows = pc.fill_null(pc.invert(result) if stops_at else result, True)
        result = combine(result, _evaluate_where(arg, env, open_rows))
    return result


def _case(call: Call, env: _Env) -> Array:
    result = pa.nulls(env.size, call.type)
    waiting = repeat_value(True, BOOL, env.size)
    for i in range(0, len(call.args) - 1, 2):
        met = pc.fill_null(_evaluate_where(call.args[i], env, waiting), False)
        chosen = pc.and_(met, waiting)
        result = _choose(chosen, _evaluate_where(call.args[i + 1], env, chosen), result)
        waiting = pc.and_not(waiting, met)
    return _choose(waiting, _evaluate_where(call.args[-1], env, waiting), result)


def _choose(mask: Array, value: Array, otherwise: Array) -> Array:
    if value.type == NULL:
        return otherwise
    return pc.if_else(mask, value, otherwise)


def _coalesce(call: Call, env: _Env) -> Array:
    result = _evaluate(call.args[0], env)
    for arg in call.args[1:]:
        missing = result.is_null()
        result = _choose(missing, _evaluate_where(arg, env, missing), result)
    return result


def fold(expr: Expr) -> Literal | None:
    """The value of an expression without columns; None where it has some, or fails.

    >>> from thetajoin.predicate.nodes import Call
    >>> fold(Call(pa.int32(), "+", (Literal(pa.int32(), 2), Literal(pa.int32(), 3)))).value
    5
    """
    if isinstance(expr, Literal):
        return expr
    if expr.sides():
        return None
    try:
        scalar = evaluate(expr)[0]
    except DataError:
        return None
    if not scalar.is_valid:
        return Literal(expr.type, None)
    if t.is_temporal(expr.type):
        width = pa.int32() if expr.type.bit_width == 32 else pa.int64()
        return Literal(expr.type, pa.array([scalar], expr.type).view(width)[0].as_py())
    return Literal(expr.type, scalar.as_py())


def simplify(expr: Expr) -> Expr:
    """The condition without constant parts of its ANDs and ORs, true where it was true before.

    FALSE and NULL count as the same: a pair matches only where a condition is true.
    """
    if not expr.sides():
        value = fold(expr)
        return expr if value is None else Literal(BOOL, value.value)
    if not isinstance(expr, Call) or expr.name not in ("and", "or"):
        return expr
    decides = expr.name == "or"
    kept: list[Expr] = []
    for arg in map(simplify, expr.args):
        if not isinstance(arg, Literal):
            kept.append(arg)
        elif (arg.value is True) == decides:
            return arg
    combined = disjunction(kept) if decides else conjunction(kept)
    return combined or Literal(BOOL, not decides)
