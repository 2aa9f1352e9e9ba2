"""The algebra of join conditions: from text or Python to a normal form, and its evaluation."""

from thetajoin.predicate.builder import Built, l, r
from thetajoin.predicate.condition import (
    align_columns,
    compile_condition,
    condition_text,
    no_condition,
)
from thetajoin.predicate.evaluate import evaluate
from thetajoin.predicate.nodes import Comparison, Condition, Conjunction, Difference, Expr

__all__ = [
    "Built",
    "Comparison",
    "Condition",
    "Conjunction",
    "Difference",
    "Expr",
    "align_columns",
    "compile_condition",
    "condition_text",
    "evaluate",
    "l",
    "no_condition",
    "r",
]
