"""Files that a query names where a table would be: ``FROM 'a.parquet' a JOIN 'logs/*.csv' b``."""

from __future__ import annotations

import glob
from pathlib import Path

from sqlglot import exp

from thetajoin.batch.files import format_of
from thetajoin.cli.files import place
from thetajoin.errors import ThetaJoinError
from thetajoin.query.text import parse_query


def named_files(query: str, base: Path) -> dict[str, str]:
    """The files in a query's text by the names they have there; relative to `base`.

    A query that cannot be read has none: what is wrong with it is told when it is run.
    """
    try:
        tree = parse_query(query).tree
    except ThetaJoinError:
        return {}
    names = [_name(table) for table in tree.find_all(exp.Table)]
    return {name: place(name, base) for name in names if name}


def _name(table: exp.Table) -> str:
    """A file's name, or nothing; without quotes a name may end like a file's, and no more."""
    name = ".".join(part.name for part in table.parts)
    quoted = isinstance(table.this, exp.Identifier) and bool(table.this.quoted)
    if quoted and not table.db:
        is_file = name == "-" or "/" in name or "." in name or glob.has_magic(name)
    else:
        is_file = bool(table.db) and format_of(name) is not None
    return name if is_file else ""
