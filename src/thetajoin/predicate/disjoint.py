"""Keeping disjuncts apart, so that a pair that satisfies several is found by one of them only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thetajoin.predicate.difference import as_difference, merge
from thetajoin.predicate.forms import Difference
from thetajoin.predicate.nodes import (
    COMPARISONS,
    FALSE,
    MIRROR,
    Call,
    Cast,
    Expr,
    conjunction,
    negation,
)
from thetajoin.predicate.types import BOOL

Atoms = tuple[Expr, ...]

# Which outcomes of a three-way comparison each operator accepts.
_OUTCOMES = {"<": "<", "<=": "<=", "=": "=", ">=": "=>", ">": ">", "!=": "<>"}


def never_together(a: Atoms, b: Atoms) -> bool:
    """Whether no pair can satisfy both, as far as comparing the same expressions shows it.

    Quadratic in the number of atoms. False only means that it could not be shown.
    """
    if _nulls(a) & _known(b) or _nulls(b) & _known(a):
        return True
    if any(_contradict(one, other) for one in a for other in b):
        return True
    first, second = (merge([d for d in map(as_difference, atoms) if d]) for atoms in (a, b))
    return any(_apart(one, other) for one in first for other in second)


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


def _nulls(atoms: Atoms) -> set[Expr]:
    """Expressions that are NULL where the atoms hold."""
    tests = (atom for atom in atoms if isinstance(atom, Call) and atom.name == "isnull")
    return {_uncast(test.args[0]) for test in tests}


def _known(atoms: Atoms) -> set[Expr]:
    """Expressions that are not NULL where the atoms hold."""
    tests = (*COMPARISONS, "isnotnull")
    found = (atom.args for atom in atoms if isinstance(atom, Call) and atom.name in tests)
    return {_uncast(arg) for args in found for arg in args}


def _uncast(expr: Expr) -> Expr:
    while isinstance(expr, Cast) and expr.implicit:
        expr = expr.arg
    return expr


def _apart(a: Difference, b: Difference) -> bool:
    same = (a.left, a.right, a.type) == (b.left, b.right, b.type)
    return same and not (a.nan and b.nan) and (_below(a, b) or _below(b, a))


def _below(a: Any, b: Any) -> bool:
    """Whether a's interval ends before b's begins."""
    if a.high is None or b.low is None:
        return False
    return bool(a.high < b.low or (a.high == b.low and (a.high_strict or b.low_strict)))


def excluded(earlier: Sequence[Atoms], atoms: Atoms) -> list[Expr] | None:
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
