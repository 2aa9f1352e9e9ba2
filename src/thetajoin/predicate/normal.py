"""A condition as disjoint conjunctions of comparisons, differences, filters and the rest.

From here on it only matters where the condition is true: negations are pushed to the leaves, where
``NOT a < b`` is ``a >= b`` (the order is total and NULL stays NULL), and then AND and OR need not
tell false from NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pyarrow.types as t

from thetajoin.limits import limits
from thetajoin.predicate.difference import as_difference, merge_differences
from thetajoin.predicate.evaluate import fold, simplify
from thetajoin.predicate.nodes import (
    COARSENED,
    COMPARISONS,
    FALSE,
    MIRROR,
    NEGATED,
    Call,
    Cast,
    Comparison,
    Conjunction,
    Difference,
    Expr,
    Literal,
    conjunction,
    disjunction,
    negation,
)
from thetajoin.predicate.types import BOOL, ticks_per_second

"""An OR that would make more disjuncts than this is checked pair by pair instead."""


def disjuncts_of(expr: Expr) -> tuple[Conjunction, ...]:
    """The disjuncts, each matching pair in exactly one; at most 2 * `limits.disjuncts`.

    >>> from thetajoin.predicate.nodes import Column
    >>> import pyarrow as pa
    >>> unequal = Call(BOOL, "!=", (Column(pa.int8(), "l", "a"), Column(pa.int8(), "r", "a")))
    >>> [str(d.comparisons[0]) for d in disjuncts_of(unequal)]
    ['l.a < r.a', 'l.a > r.a']
    """
    whole = push_negations(expr)
    split = (part for atoms in _expand(whole) for part in _split_unequal(atoms))
    parts = list(dict.fromkeys(split))
    kept: list[Conjunction] = []
    for i, atoms in enumerate(parts):
        earlier = [other for other in parts[:i] if not never_together(other, atoms)]
        exclusions = make_exclusions(earlier, atoms)
        if exclusions is not None:
            # They come first, so that they guard what follows, as the left operand of OR does.
            kept.append(_conjunction((*exclusions, *atoms)))
    return tuple(kept)


def push_negations(expr: Expr) -> Expr:
    """The condition with negations at the leaves and constants gone; true where it was true."""
    return simplify(_push(expr, False))


def _push(expr: Expr, negated: bool) -> Expr:
    if isinstance(expr, Call) and len(expr.sides()) == 2:
        name, args = expr.name, expr.args
        if name == "not":
            return _push(args[0], not negated)
        if name in ("and", "or"):
            parts = [_push(arg, negated) for arg in args]
            both = (name == "and") != negated
            return (conjunction(parts) if both else disjunction(parts)) or expr
        if name in COMPARISONS:
            return _expand_abs(Call(BOOL, NEGATED[name], args) if negated else expr)
        if name == "in":
            op, combine = ("!=", conjunction) if negated else ("=", disjunction)
            return combine([Call(BOOL, op, (args[0], other)) for other in args[1:]]) or expr
        if name == "<=>" and args[0].sides() != args[1].sides():
            return _expand_null_safe(args, negated)
        if name == "coalesce" and len(args) == 2 and args[1] == FALSE and not negated:
            return _push(args[0], False)
    return negation(expr) if negated else expr


def _expand_null_safe(args: tuple[Expr, ...], negated: bool) -> Expr:
    a, b = args
    null = [Call(BOOL, "isnull", (arg,)) for arg in args]
    known = [Call(BOOL, "isnotnull", (arg,)) for arg in args]
    if negated:
        one_null = [[null[0], known[1]], [known[0], null[1]]]
        cases = [Call(BOOL, "!=", (a, b)), *(conjunction(list(pair)) for pair in one_null)]
    else:
        cases = [Call(BOOL, "=", (a, b)), conjunction([null[0], null[1]])]
    return disjunction([case for case in cases if case is not None]) or a


def _expand_abs(atom: Call) -> Expr:
    """``ABS(x) <= d`` as ``x <= d AND x >= -d``, and so on, where x is a difference."""
    op, (value, bound) = atom.name, atom.args
    if not value.sides():
        op, value, bound = MIRROR[op], bound, value
    inner = _find_abs(value)
    if inner is None or op == "!=" or as_difference(Call(BOOL, "<", (inner, bound))) is None:
        return atom
    constant = fold(bound)
    minus = _negate_literal(constant) if constant is not None else None
    if constant is None or minus is None:
        return atom
    if op == "=" and minus.value > constant.value:  # type: ignore[operator]
        op = "<"  # nothing is at a distance below zero, nor below that
    upper, lower = Call(BOOL, op, (inner, constant)), Call(BOOL, MIRROR[op], (inner, minus))
    if op in ("<", "<="):
        return Call(BOOL, "and", (lower, upper))
    return upper if upper == lower else Call(BOOL, "or", (lower, upper))


def _find_abs(value: Expr) -> Expr | None:
    if isinstance(value, Cast) and value.implicit:
        inner = _find_abs(value.arg)
        return None if inner is None else Cast(value.type, inner, implicit=True)
    if isinstance(value, Call) and value.name == "abs" and len(value.sides()) == 2:
        return value.args[0]
    return None


def _negate_literal(constant: Literal) -> Literal | None:
    value: Any = constant.value
    if value is None or (
        t.is_integer(constant.type) and value <= -(2 ** (constant.type.bit_width - 1))
    ):
        return None
    if t.is_decimal(constant.type):
        return Literal(constant.type, value.copy_negate())
    return Literal(constant.type, -value)


def _expand(expr: Expr) -> list[Atoms]:
    """The disjunctive normal form, in which an OR too large to expand is one atom."""
    if not isinstance(expr, Call) or len(expr.sides()) < 2 or expr.name not in ("and", "or"):
        return [(expr,)]
    if expr.name == "or":
        parts = [atoms for arg in expr.args for atoms in _expand(arg)]
        # A disjunct that narrows nothing would visit every pair, just like the OR itself.
        useful = all(any(map(_narrows, atoms)) for atoms in parts)
        return parts if useful and len(parts) <= limits.disjuncts else [(expr,)]
    expanded = [_expand(arg) for arg in expr.args]
    size = 1
    for i in sorted(range(len(expanded)), key=lambda i: len(expanded[i])):
        if size * len(expanded[i]) > limits.disjuncts:
            expanded[i] = [(expr.args[i],)]
        size *= len(expanded[i])
    return [
        tuple(dict.fromkeys(atom for atoms in choice for atom in atoms))
        for choice in product(*expanded)
    ]


def _narrows(atom: Expr) -> bool:
    """Whether an index or a filter can use the atom."""
    if len(atom.sides()) < 2 or as_comparison(atom) is not None:
        return True
    if isinstance(atom, Call) and atom.name == "!=":
        atom = Call(BOOL, "<", atom.args)
    return as_difference(atom) is not None


def _split_unequal(atoms: Atoms) -> list[Atoms]:
    """Two conjunctions, with < and with >, if a != is all there is to search by."""
    form = _conjunction(atoms)
    if form.differences or any(comparison.op != "!=" for comparison in form.comparisons):
        return [atoms]
    for i, atom in enumerate(atoms):
        if not isinstance(atom, Call) or atom.name != "!=":
            continue
        less, more = (Call(BOOL, op, atom.args) for op in ("<", ">"))
        if as_comparison(less) is not None or as_difference(less) is not None:
            return [(*atoms[:i], part, *atoms[i + 1 :]) for part in (less, more)]
    return [atoms]


def as_comparison(atom: Expr) -> Comparison | None:
    """The atom as a comparison of the left side with the right, or None."""
    if not isinstance(atom, Call) or atom.name not in COMPARISONS:
        return None
    (left, right), op = atom.args, atom.name
    if left.sides() == {"r"}:
        left, right, op = right, left, MIRROR[op]
    if left.sides() != {"l"} or right.sides() != {"r"}:
        return None
    if left.type == right.type:
        return Comparison(op, left, right, left.type)
    if op == "!=":
        return None  # it would hold for times that the coarser unit cannot express
    if ticks_per_second(left.type) < ticks_per_second(right.type):
        right = Call(left.type, COARSENED + op, (right,))
    else:
        left = Call(right.type, COARSENED + MIRROR[op], (left,))
    return Comparison(op, left, right, left.type)


def _conjunction(atoms: Atoms) -> Conjunction:
    comparisons: list[Comparison] = []
    differences = []
    rest: dict[str, list[Expr]] = {"l": [], "r": [], "both": []}
    for atom in atoms:
        comparison = as_comparison(atom)
        difference = as_difference(atom)
        if comparison is not None:
            comparisons.append(comparison)
        elif difference is not None:
            differences.append(difference)
        else:
            sides = atom.sides()
            rest[next(iter(sides)) if len(sides) == 1 else "both"].append(atom)
    return Conjunction(
        tuple(dict.fromkeys(comparisons)),
        merge_differences(differences),
        conjunction(rest["l"]),
        conjunction(rest["r"]),
        conjunction(rest["both"]),
    )


Atoms = tuple[Expr, ...]

# Which outcomes of a three-way comparison each operator accepts.
_OUTCOMES = {"<": "<", "<=": "<=", "=": "=", ">=": "=>", ">": ">", "!=": "<>"}


def never_together(a: Atoms, b: Atoms) -> bool:
    """Whether no pair can satisfy both, as far as comparisons of the same expressions show.

    Quadratic in the number of atoms. False only means that nothing was shown.
    """
    if _find_nulls(a) & _find_not_null(b) or _find_nulls(b) & _find_not_null(a):
        return True
    if any(_contradict(one, other) for one in a for other in b):
        return True
    first, second = (
        merge_differences([d for d in map(as_difference, atoms) if d]) for atoms in (a, b)
    )
    return any(_exclude_each_other(one, other) for one in first for other in second)


def _contradict(a: Expr, b: Expr) -> bool:
    if not (isinstance(a, Call) and isinstance(b, Call)):
        return False
    if a.name not in COMPARISONS or b.name not in COMPARISONS:
        return False
    if a.args == b.args:
        op = b.name
    elif a.args == b.args[::-1]:
        op = MIRROR[b.name]
    else:
        return False
    return not set(_OUTCOMES[a.name]) & set(_OUTCOMES[op])


def _find_nulls(atoms: Atoms) -> set[Expr]:
    """Expressions that are NULL where the atoms hold."""
    tests = (atom for atom in atoms if isinstance(atom, Call) and atom.name == "isnull")
    return {_strip_casts(test.args[0]) for test in tests}


def _find_not_null(atoms: Atoms) -> set[Expr]:
    """Expressions that are not NULL where the atoms hold."""
    tests = (*COMPARISONS, "isnotnull")
    found = (atom.args for atom in atoms if isinstance(atom, Call) and atom.name in tests)
    return {_strip_casts(arg) for args in found for arg in args}


def _strip_casts(expr: Expr) -> Expr:
    while isinstance(expr, Cast) and expr.implicit:
        expr = expr.arg
    return expr


def _exclude_each_other(a: Difference, b: Difference) -> bool:
    same = (a.left, a.right, a.type) == (b.left, b.right, b.type)
    return same and not (a.nan and b.nan) and (_lies_below(a, b) or _lies_below(b, a))


def _lies_below(a: Any, b: Any) -> bool:
    """Whether a's interval ends before b's begins."""
    if a.high is None or b.low is None:
        return False
    return bool(a.high < b.low or (a.high == b.low and (a.high_strict or b.low_strict)))


def make_exclusions(earlier: Sequence[Atoms], atoms: Atoms) -> list[Expr] | None:
    """What keeps a disjunct from finding pairs of earlier ones; None where they find all of its.

    Atoms that both have are true here, so only the others of the earlier disjunct can be not true.
    """
    shared = set(atoms)
    exclusions: list[Expr] = []
    for other in earlier:
        own = conjunction([atom for atom in other if atom not in shared])
        if own is None:
            return None
        exclusions.append(negation(Call(BOOL, "coalesce", (own, FALSE))))
    return list(dict.fromkeys(exclusions))
