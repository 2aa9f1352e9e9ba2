"""The clauses and functions of a condition, one handler for each kind of sqlglot node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from thetajoin.errors import nearest
from thetajoin.predicate.casts import can_cast
from thetajoin.predicate.functions import FUNCTIONS, MANY
from thetajoin.predicate.literals import TYPE_FUNCTIONS, interval, sql_type, typed
from thetajoin.predicate.nodes import FALSE, Call, Cast, Expr, Literal, coerced
from thetajoin.predicate.signatures import MismatchError, case, comparison, logical, unified
from thetajoin.predicate.types import BINARY, BOOL, NULL, STRING, is_comparable, type_name

if TYPE_CHECKING:
    from thetajoin.predicate.bind import Binder

_AGGREGATES = {
    *("any_value", "approx_count_distinct", "avg", "bool_and", "bool_or", "collect_list"),
    *("collect_set", "count", "count_if", "first", "last", "max", "mean", "median", "min", "mode"),
    *("percentile", "stddev", "std", "sum", "variance", "corr", "max_by", "min_by", "every"),
}


def _boolean(_: Binder, node: exp.Boolean) -> Expr:
    return Literal(BOOL, bool(node.this))


def _string(_: Binder, node: exp.Literal) -> Expr:
    return Literal(STRING, node.this)


def _hex(_: Binder, node: exp.HexString) -> Expr:
    digits = str(node.this)
    try:
        return Literal(BINARY, bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits))
    except ValueError:
        raise MismatchError(f"X'{digits}' is not hexadecimal") from None


def _column(binder: Binder, node: exp.Column) -> Expr:
    return binder.scope.resolve(_parts(binder, node))


def _parts(binder: Binder, node: Any) -> list[str]:
    if isinstance(node, exp.Dot):
        return [*_parts(binder, node.this), node.expression.name]
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        raise binder.unsupported(node)
    return [part.name for part in node.parts]


def _not(binder: Binder, node: exp.Not) -> Expr:
    inner = binder.bind(node.this)
    if isinstance(inner, Call) and inner.name == "isnull":
        return Call(BOOL, "isnotnull", inner.args)
    return logical("not", [inner])


def _is(binder: Binder, node: exp.Is) -> Expr:
    value = binder.bind(node.this)
    if isinstance(node.expression, exp.Null):
        return Call(BOOL, "isnull", (value,))
    if not isinstance(node.expression, exp.Boolean):
        raise MismatchError("IS takes NULL, TRUE or FALSE")
    negated = logical("not", [value])
    return Call(BOOL, "coalesce", (negated.args[0] if node.expression.this else negated, FALSE))


def _distinct(binder: Binder, node: exp.NullSafeNEQ) -> Expr:
    same = comparison("<=>", binder.bind(node.this), binder.bind(node.expression))
    return logical("not", [same])


def _between(binder: Binder, node: exp.Between) -> Expr:
    if node.args.get("symmetric"):
        raise MismatchError("BETWEEN SYMMETRIC is not supported", "order the bounds")
    value, low, high = (binder.bind(node.args[key]) for key in ("this", "low", "high"))
    return logical("and", [comparison(">=", value, low), comparison("<=", value, high)])


def _in(binder: Binder, node: exp.In) -> Expr:
    if node.args.get("query") is not None or not node.expressions:
        if node.args.get("query") is not None:
            raise binder.unsupported(node.args["query"])
        raise MismatchError("IN needs a list of values", "write IN (1, 2)")
    type_, operands = unified([binder.bind(part) for part in (node.this, *node.expressions)], "IN")
    if not is_comparable(type_):
        raise MismatchError(f"cannot compare values of {type_name(type_)}")
    return Call(BOOL, "in", operands)


def _like(binder: Binder, node: exp.Like | exp.ILike, escape: exp.Expr | None = None) -> Expr:
    parts = [node.this, node.expression, *([escape] if escape is not None else [])]
    operands = [binder.bind(part) for part in parts]
    for operand in operands:
        if operand.type not in (STRING, NULL):
            raise MismatchError(f"LIKE takes STRING, not {type_name(operand.type)}", "cast it")
    operands = [coerced(operand, STRING) for operand in operands]
    if isinstance(node, exp.ILike):
        operands[:2] = [Call(STRING, "lower", (operand,)) for operand in operands[:2]]
    matches = Call(BOOL, "like", tuple(operands))
    return logical("not", [matches]) if node.args.get("negate") else matches


def _escape(binder: Binder, node: exp.Escape) -> Expr:
    if not isinstance(node.this, exp.Like | exp.ILike):
        raise binder.unsupported(node)
    return _like(binder, node.this, node.expression)


def _cast(binder: Binder, node: exp.Cast) -> Expr:
    to = sql_type(node.to)
    if to is None:
        raise MismatchError(f"cannot cast to {node.to.sql()}", "cast to a plain type")
    if type(node) is exp.Cast and isinstance(node.this, exp.Literal) and node.this.is_string:
        return typed(node.this.name, to)
    return _cast_expr(binder.bind(node.this), to, bool(node.args.get("safe")))


def _cast_expr(value: Expr, to: pa.DataType, lenient: bool = False) -> Expr:
    if not can_cast(value.type, to):
        raise MismatchError(f"cannot cast {type_name(value.type)} to {type_name(to)}")
    return Cast(to, value, lenient=lenient)


def _interval(binder: Binder, node: exp.Interval) -> Expr:
    unit = node.args.get("unit")
    if not isinstance(node.this, exp.Literal):
        raise MismatchError("INTERVAL needs a constant", "write r.n * INTERVAL '1' MINUTE")
    try:
        if isinstance(unit, exp.IntervalSpan):
            return interval(node.this.name, unit.this.name, unit.expression.name)
        return interval(node.this.name, unit.name if unit is not None else None, None)
    except MismatchError as problem:
        where = r"interval\s+\S+(\s+\w+)?"  # sqlglot keeps no positions of intervals
        raise binder.source.error_at(where, str(problem), problem.hint) from None


def _case(binder: Binder, node: exp.Case) -> Expr:
    subject = binder.bind(node.this) if node.this is not None else None
    arms = []
    for arm in node.args["ifs"]:
        test = binder.bind(arm.this)
        condition = test if subject is None else comparison("=", subject, test)
        arms.append((condition, binder.bind(arm.args["true"])))
    default = node.args.get("default")
    return case(arms, binder.bind(default) if default is not None else Literal(NULL, None))


def _if(binder: Binder, node: exp.If) -> Expr:
    default = node.args.get("false")
    value = binder.bind(default) if default is not None else Literal(NULL, None)
    return case([(binder.bind(node.this), binder.bind(node.args["true"]))], value)


def _trim(binder: Binder, node: exp.Trim) -> Expr:
    if node.args.get("expression") is not None:
        raise MismatchError("TRIM of other characters than spaces is not supported")
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(node.args.get("position") or "", "trim")
    return FUNCTIONS[name].bind(name, [binder.bind(node.this)])


def _substring(binder: Binder, node: exp.Substring) -> Expr:
    parts = [node.this, node.args.get("start"), node.args.get("length")]
    return FUNCTIONS["substring"].bind(
        "substring", [binder.bind(part) for part in parts if part is not None]
    )


def _extract(binder: Binder, node: exp.Extract) -> Expr:
    return _call(binder, node.this.name.lower(), [node.expression])


def _function(binder: Binder, node: exp.Anonymous) -> Expr:
    name = node.name.lower()
    if name in _AGGREGATES:
        raise MismatchError(f"an aggregate ({name}) cannot be part of a join condition", "")
    return _call(binder, name, node.expressions)


def _call(binder: Binder, name: str, arguments: list[exp.Expr]) -> Expr:
    if name in TYPE_FUNCTIONS and len(arguments) == 1:
        return _cast_expr(binder.bind(arguments[0]), TYPE_FUNCTIONS[name])
    function = FUNCTIONS.get(name)
    if function is None:
        raise MismatchError(f"unsupported function {name!r}", nearest(name, sorted(FUNCTIONS)))
    least, most = function.least, function.most
    if not least <= len(arguments) <= most:
        upto = "" if least == most else " or more" if most == MANY else f" to {most}"
        raise MismatchError(f"{name} takes {least}{upto} arguments, not {len(arguments)}")
    return function.bind(name, [binder.bind(part) for part in arguments])


# What a node may say beside its operands; a word that no handler reads must not be ignored.
KNOWN_ARGS: dict[type[exp.Expr], set[str]] = {
    exp.Between: {"low", "high", "symmetric"},
    exp.Case: {"ifs", "default"},
    exp.Cast: {"to"},
    exp.Column: {"table", "db", "catalog"},
    exp.DPipe: {"safe"},
    exp.Div: {"typed", "safe"},
    exp.If: {"true", "false"},
    exp.In: {"query"},
    exp.Interval: {"unit"},
    exp.ILike: {"negate"},
    exp.Like: {"negate"},
    exp.Literal: {"is_string"},
    exp.HexString: {"is_integer"},
    exp.Substring: {"start", "length"},
    exp.Trim: {"position"},
    exp.TryCast: {"to", "safe"},
}

HANDLERS: dict[type[exp.Expr], Callable[[Binder, Any], Expr]] = {
    exp.Boolean: _boolean,
    exp.Null: lambda binder, node: Literal(NULL, None),
    exp.Literal: _string,
    exp.RawString: _string,
    exp.HexString: _hex,
    exp.Column: _column,
    exp.Dot: _column,
    exp.Paren: lambda binder, node: binder.bind(node.this),
    exp.Not: _not,
    exp.Is: _is,
    exp.NullSafeNEQ: _distinct,
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Interval: _interval,
    exp.Case: _case,
    exp.If: _if,
    exp.Trim: _trim,
    exp.Substring: _substring,
    exp.Extract: _extract,
    exp.DPipe: lambda binder, node: _call(binder, "concat", [node.this, node.expression]),
    exp.Anonymous: _function,
}
