"""Binding and evaluating pieces of conditions, for tests."""

from __future__ import annotations

import pyarrow as pa

from predicate.strategies import SCHEMA
from thetajoin.predicate import evaluate
from thetajoin.predicate.bind import bind
from thetajoin.predicate.names import Scope
from thetajoin.predicate.nodes import Expr
from thetajoin.predicate.parse import Source


def bound(text: str, schema: pa.Schema = SCHEMA) -> Expr:
    return bind(Source(text), Scope(schema, schema))


def constant(text: str) -> object:
    """The value of an expression without columns."""
    return evaluate(bound(f"({text}) IS NULL").children[0])[0].as_py()
