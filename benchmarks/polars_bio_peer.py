"""polars-bio's side of a benchmark, in a Python of its own: a script that imports no thetajoin.

Arguments: a folder with left.parquet, right.parquet and call.json. Its first line is its version.
It answers each line of input: ``run`` computes the result, ``save`` also writes it to
result.parquet.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any


def main(folder: Path) -> None:
    """Load the tables, say so, then compute once for each line."""
    import polars as pl
    import polars_bio as pb

    call = json.loads((folder / "call.json").read_text())
    pb.set_option("datafusion.execution.target_partitions", str(call["threads"]))
    tables: list[Any] = [pl.read_parquet(folder / f"{side}.parquet") for side in ("left", "right")]
    for table in tables:
        # Half-open intervals, as in BED files.
        table.config_meta.set(coordinate_system_zero_based=True)
    operation = getattr(pb, call["operation"])

    def compute() -> Any:
        return operation(
            *tables,
            cols1=call["left"],
            cols2=call["right"],
            suffixes=("", "_right"),
            output_type="polars.DataFrame",
        )

    _say(version("polars-bio"))
    for line in sys.stdin:
        found = compute()
        rows = found.height
        if line.strip() == "save":
            found.write_parquet(folder / "result.parquet")
        del found
        _say(str(rows))


def _say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
