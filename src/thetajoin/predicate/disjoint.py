"""Keeping disjuncts apart, so that a pair that satisfies several is found by one of them only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thetajoin.predicate.forms import Conjunction, Difference
from thetajoin.predicate.nodes import FALSE, Call, Expr, conjunction, negation
from thetajoin.predicate.types import BOOL

# Which outcomes of a three-way comparison each operator accepts.
_OUTCOMES = {"<": "<", "<=": "<=", "=": "=", ">=": "=>", ">": ">", "!=": "<>"}


def never_together(a: Conjunction, b: Conjunction) -> bool:
    """Whether no pair can satisfy both, as far as comparing the same expressions shows it.

    Quadratic in the number of comparisons.
    """
    for one in a.comparisons:
        for other in b.comparisons:
            same = (one.left, one.right, one.type) == (other.left, other.right, other.type)
            if same and not set(_OUTCOMES[one.op]) & set(_OUTCOMES[other.op]):
                return True
    return any(_apart(one, other) for one in a.differences for other in b.differences)


def _apart(a: Difference, b: Difference) -> bool:
    same = (a.left, a.right, a.type) == (b.left, b.right, b.type)
    return same and not (a.nan and b.nan) and (_below(a, b) or _below(b, a))


def _below(a: Any, b: Any) -> bool:
    """Whether a's interval ends before b's begins."""
    if a.high is None or b.low is None:
        return False
    return bool(a.high < b.low or (a.high == b.low and (a.high_strict or b.low_strict)))


def excluded(earlier: Sequence[tuple[Expr, ...]], atoms: tuple[Expr, ...]) -> list[Expr] | None:
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
