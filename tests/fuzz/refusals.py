"""Refusals that are right: a call that the contract lets end in an error, and the reason."""

from __future__ import annotations

import re

import thetajoin as tj
from fuzz.cases import Case

# What the message says, and why it may.
REASONS = {
    r"index='\w+' cannot serve": "an index serves conditions that have keys for it",
    r"the condition is constant": "a condition that no pair decides is an error by contract",
    r"the condition names only": "a condition over one side is an error by contract",
    r"not VOID at position": "a pandas column without a value has no type",
    r"has no time zone and": "nothing but a CAST says how times with and without a zone compare",
    r"which DuckDB has no type for": "DuckDB runs what surrounds a join, and has fewer types",
    r"Could not convert Timestamp": "DuckDB runs what surrounds a join, and has fewer times",
}


# The same where an input is a pandas DataFrame.
PANDAS = {
    r"time column '[\w.]+' is double": "a pandas column of integers with NULL is of floats",
    r"div does not take DOUBLE": "a pandas column of integers with NULL is of floats",
    r"pandas cannot hold a value": "pandas has dates of the years 1 to 9999",
}


def is_expected(case: Case, error: tj.ThetaJoinError) -> str:
    """The reason why a call may end in this error; empty where it may not."""
    text = str(error)
    pandas = any("pandas" in given for given in case.inputs.values())
    for pattern, reason in (REASONS | (PANDAS if pandas else {})).items():
        if re.search(pattern, text):
            return reason
    return ""
