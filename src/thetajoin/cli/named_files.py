"""Files that a query names where a table would be: ``FROM 'a.parquet' a JOIN 'logs/*.csv' b``."""

from __future__ import annotations

import glob
from pathlib import Path

from sqlglot import exp

from thetajoin.cli.files import STDIN
from thetajoin.errors import ThetaJoinError
from thetajoin.query.text import parse_query


def named_files(query: str, base: Path) -> dict[str, Path]:
    """The files in a query's text by the names they have there; relative to `base`.

    A query that cannot be read has none: what is wrong with it is told when it is run.
    """
    try:
        tree = parse_query(query).tree
    except ThetaJoinError:
        return {}
    names = [table.name for table in tree.find_all(exp.Table) if _is_quoted(table)]
    return {name: STDIN if name == "-" else base / name for name in names if _is_file(name)}


def _is_quoted(table: exp.Table) -> bool:
    return isinstance(table.this, exp.Identifier) and bool(table.this.quoted) and not table.db


def _is_file(name: str) -> bool:
    return name == "-" or "/" in name or "." in name or glob.has_magic(name)
