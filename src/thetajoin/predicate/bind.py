"""sqlglot trees to bound expressions: names resolved, types checked, implied casts made nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from thetajoin.errors import ConditionError, suggest
from thetajoin.predicate.casts import can_cast
from thetajoin.predicate.condition import Names
from thetajoin.predicate.functions import FUNCTIONS, MANY
from thetajoin.predicate.literals import (
    TYPE_FUNCTIONS,
    parse_interval,
    parse_number,
    parse_typed,
    sql_type,
)
from thetajoin.predicate.nodes import FALSE, Call, Cast, Expr, Literal, coerce
from thetajoin.predicate.parse import Source, parse
from thetajoin.predicate.signatures import (
    MismatchError,
    arithmetic,
    case,
    comparison,
    logical,
    unify,
)
from thetajoin.predicate.types import BINARY, BOOL, NULL, STRING, is_comparable, type_name

_COMPARE: dict[type[exp.Expr], str] = {
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.NullSafeEQ: "<=>",
}
_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.Neg: "neg",
    exp.BitwiseNot: "~",
}


# Levels that an expression may have: functions that walk over it recurse about twice for each.
MOST_LEVELS = 200
TOO_DEEP = "the condition is nested too deeply"


def bind(source: Source, scope: Names) -> Expr:
    """The bound boolean expression of a condition's text; every mistake is a ConditionError.

    >>> from thetajoin.predicate.condition import Scope
    >>> scope = Scope(pa.schema({"a": pa.int32()}), pa.schema({"b": pa.int64()}))
    >>> bind(Source("l.a < b"), scope).sql(explicit=True)
    'CAST(l.a AS BIGINT) < r.b'
    """
    tree = parse(source)
    expr = bind_tree(source, scope, tree)
    if expr.type not in (BOOL, NULL):
        raise source.error(
            f"a condition must be true or false, not {type_name(expr.type)}",
            tree,
            "compare it with something",
        )
    return coerce(expr, BOOL)


def bind_tree(source: Source, scope: Names, tree: exp.Expr) -> Expr:
    """The bound expression of a tree, or of a part of one, of any type."""
    try:
        expr = Binder(source, scope).bind(tree)
    except RecursionError:
        raise source.error(TOO_DEEP) from None
    if expr.depth() > MOST_LEVELS:
        raise source.error(TOO_DEEP)
    return expr


@dataclass(frozen=True)
class Binder:
    """A walk over one condition's tree."""

    source: Source
    scope: Names

    def bind(self, node: exp.Expr) -> Expr:
        """Bind a node, pointing at it if its types do not fit."""
        try:
            return self._bind(node)
        except MismatchError as problem:
            raise self.source.error(str(problem), node, problem.hint) from None

    def _bind(self, node: exp.Expr) -> Expr:
        kind = type(node)
        said = {name for name, value in node.args.items() if value}
        if said - {"this", "expression", "expressions"} - KNOWN_ARGS.get(kind, set()):
            raise self.refuse_syntax(node)
        if kind in _COMPARE:
            return comparison(_COMPARE[kind], self.bind(node.this), self.bind(node.expression))
        if kind in (exp.And, exp.Or):
            return logical("and" if kind is exp.And else "or", self._chain(node))
        literal = self._number(node)
        if literal is not None:
            return literal
        if kind in _OPERATORS:
            parts = (node.this, node.args.get("expression"))
            return arithmetic(_OPERATORS[kind], [self.bind(part) for part in parts if part])
        handler = HANDLERS.get(kind)
        if handler is None:
            raise self.refuse_syntax(node)
        return handler(self, node)

    def _chain(self, node: exp.Expr) -> list[Expr]:
        """The operands of a chain of ANDs or ORs, without recursion along it."""
        kind, reversed_operands = type(node), []
        while type(node) is kind:
            reversed_operands.append(node.expression)
            node = node.this
        return [self.bind(part) for part in (node, *reversed(reversed_operands))]

    def _number(self, node: exp.Expr, negative: bool = False) -> Literal | None:
        """A numeric literal with its sign and suffix, or None."""
        if isinstance(node, exp.Neg) and not negative:
            return self._number(node.this, True)
        if isinstance(node, exp.Literal) and not node.is_string:
            return parse_number(node.name, negative=negative)
        # 5L and 1.5BD reach us as casts that no CAST in the text made.
        if isinstance(node, exp.TryCast) and isinstance(node.this, exp.Literal):
            to = sql_type(node.to)
            suffixed = not node.this.is_string or (to is not None and pa.types.is_decimal(to))
            end = node.this.meta.get("end", -1)
            typed_suffix = self.source.text[end : end + 1].isalpha()
            if suffixed and (typed_suffix or (node.this.is_string and end < 0)):
                return parse_number(node.this.name, to, negative=negative)
        return None

    def refuse_syntax(self, node: exp.Expr) -> ConditionError:
        """The error for syntax that no condition may have."""
        if isinstance(node, exp.Query | exp.Subquery | exp.Exists | exp.Any | exp.All):
            problem = "a subquery cannot be part of a join condition"
            return self.source.error_at(r"\(?\s*select\b.*", problem, "join its result instead")
        if isinstance(node, exp.Window | exp.Filter):
            return self.source.error("a window function cannot be part of a join condition", node)
        what = type(node).__name__.lower()
        return self.source.error(
            f"{what} is not supported in a condition", node, "use comparisons of expressions"
        )


AGGREGATES = {
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
        raise binder.refuse_syntax(node)
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
            raise binder.refuse_syntax(node.args["query"])
        raise MismatchError("IN needs a list of values", "write IN (1, 2)")
    type_, operands = unify([binder.bind(part) for part in (node.this, *node.expressions)], "IN")
    if not is_comparable(type_):
        raise MismatchError(f"cannot compare values of {type_name(type_)}")
    return Call(BOOL, "in", operands)


def _like(binder: Binder, node: exp.Like | exp.ILike, escape: exp.Expr | None = None) -> Expr:
    parts = [node.this, node.expression, *([escape] if escape is not None else [])]
    operands = [binder.bind(part) for part in parts]
    for operand in operands:
        if operand.type not in (STRING, NULL):
            raise MismatchError(f"LIKE takes STRING, not {type_name(operand.type)}", "cast it")
    operands = [coerce(operand, STRING) for operand in operands]
    if isinstance(node, exp.ILike):
        operands[:2] = [Call(STRING, "lower", (operand,)) for operand in operands[:2]]
    matches = Call(BOOL, "like", tuple(operands))
    return logical("not", [matches]) if node.args.get("negate") else matches


def _escape(binder: Binder, node: exp.Escape) -> Expr:
    if not isinstance(node.this, exp.Like | exp.ILike):
        raise binder.refuse_syntax(node)
    return _like(binder, node.this, node.expression)


def _cast(binder: Binder, node: exp.Cast) -> Expr:
    to = sql_type(node.to)
    if to is None:
        raise MismatchError(f"cannot cast to {node.to.sql()}", "cast to a plain type")
    if type(node) is exp.Cast and isinstance(node.this, exp.Literal) and node.this.is_string:
        return parse_typed(node.this.name, to)
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
            return parse_interval(node.this.name, unit.this.name, unit.expression.name)
        return parse_interval(node.this.name, unit.name if unit is not None else None, None)
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
    if name in AGGREGATES:
        raise MismatchError(f"an aggregate ({name}) cannot be part of a join condition", "")
    return _call(binder, name, node.expressions)


def _call(binder: Binder, name: str, arguments: list[exp.Expr]) -> Expr:
    if name in TYPE_FUNCTIONS and len(arguments) == 1:
        return _cast_expr(binder.bind(arguments[0]), TYPE_FUNCTIONS[name])
    function = FUNCTIONS.get(name)
    if function is None:
        raise MismatchError(f"unsupported function {name!r}", suggest(name, sorted(FUNCTIONS)))
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
