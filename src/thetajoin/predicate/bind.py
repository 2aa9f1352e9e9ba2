"""sqlglot trees to bound expressions: names resolved, types checked, implied casts made nodes."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from thetajoin.errors import ConditionError
from thetajoin.predicate.clauses import HANDLERS, KNOWN_ARGS
from thetajoin.predicate.literals import number, sql_type
from thetajoin.predicate.names import Names
from thetajoin.predicate.nodes import Expr, Literal, coerced
from thetajoin.predicate.parse import Source, parse
from thetajoin.predicate.signatures import MismatchError, arithmetic, comparison, logical
from thetajoin.predicate.types import BOOL, NULL, type_name

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


# Levels that an expression may have: what walks over it calls itself about twice for each.
MOST_LEVELS = 200
TOO_DEEP = "the condition is nested too deeply"


def bind(source: Source, scope: Names) -> Expr:
    """The bound boolean expression of a condition's text; every mistake is a ConditionError.

    >>> from thetajoin.predicate.names import Scope
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
    return coerced(expr, BOOL)


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
            raise self.unsupported(node)
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
            raise self.unsupported(node)
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
            return number(node.name, negative=negative)
        # 5L and 1.5BD reach us as casts that no CAST in the text made.
        if isinstance(node, exp.TryCast) and isinstance(node.this, exp.Literal):
            to = sql_type(node.to)
            suffixed = not node.this.is_string or (to is not None and pa.types.is_decimal(to))
            end = node.this.meta.get("end", -1)
            typed_suffix = self.source.text[end : end + 1].isalpha()
            if suffixed and (typed_suffix or (node.this.is_string and end < 0)):
                return number(node.this.name, to, negative=negative)
        return None

    def unsupported(self, node: exp.Expr) -> ConditionError:
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
