"""Pathway's side of a benchmark, in a Python of its own: a script that imports no thetajoin.

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
    import pathway as pw
    import pyarrow.parquet as pq

    call = json.loads((folder / "call.json").read_text())
    # `id` is a name that Pathway keeps for itself.
    frames = [
        pq.read_table(folder / f"{side}.parquet").to_pandas().rename(columns={"id": "id_"})
        for side in ("left", "right")
    ]
    left, right = (pw.debug.table_from_pandas(frame) for frame in frames)
    names = ["id_" if name == "id" else name for name in call["columns"]]

    def compute() -> Any:
        (time, *keys), (other_time, *others) = call["left"], call["right"]
        times = left[time], right[other_time]
        equal = [left[key] == right[other] for key, other in zip(keys, others, strict=True)]
        if call["operation"] == "asof_join":
            joined = left.asof_join(right, *times, *equal, how=pw.JoinMode.LEFT)
        else:
            joined = left.interval_join(
                right, *times, pw.temporal.interval(*call["interval"]), *equal
            )
        sides = {name: (pw.left if name in frames[0] else pw.right)[name] for name in names}
        return pw.debug.table_to_pandas(joined.select(**sides), include_id=False)

    _say(version("pathway"))
    for line in sys.stdin:
        found = compute()
        rows = len(found)
        if line.strip() == "save":
            found.rename(columns={"id_": "id"}).to_parquet(folder / "result.parquet", index=False)
        del found
        _say(str(rows))


def _say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
