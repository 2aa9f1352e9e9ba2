"""One text for all ways to write a condition that plainly mean the same."""

from __future__ import annotations

from thetajoin.predicate.nodes import MIRROR, Call, Expr


def canonical(expr: Expr) -> str:
    """The expression's text with the operands of AND and OR, and sides of comparisons, in order.

    >>> from thetajoin.predicate import compile_condition
    >>> import pyarrow as pa
    >>> schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
    >>> texts = ("l.a < r.a AND l.b > r.b", "r.b<l.b   and (r.a > l.a)")
    >>> {canonical(compile_condition(text, schema, schema).expr) for text in texts}
    {'((l.a < r.a) AND (l.b > r.b))'}
    """
    if isinstance(expr, Call) and expr.name in ("and", "or"):
        parts = sorted({canonical(part) for part in expr.args})
        return f"({f' {expr.name.upper()} '.join(parts)})" if len(parts) > 1 else parts[0]
    if isinstance(expr, Call) and expr.name in MIRROR:
        left, right = (canonical(part) for part in expr.args)
        op = expr.name
        if right < left:
            left, op, right = right, MIRROR[op], left
        return f"({left} {op} {right})"
    return expr.sql(explicit=True)
