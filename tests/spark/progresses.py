"""Reports of a query that never ran, as the page, metrics and logs would get them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from thetajoin.jobs.progress import JoinProgress, read_progress

REPORT = (Path(__file__).parents[1] / "cli" / "progress.json").read_text()
BASE = read_progress(REPORT)
BEGAN = 1_700_000_000.0


def progress(number: int, every: float = 2.0, **changes: Any) -> JoinProgress:
    """The micro-batch of that number, of a query with a micro-batch every so many seconds."""
    given: dict[str, Any] = {
        "batch": number,
        "began": BEGAN + every * number,
        "batch_ms": 500 + number % 7,
        "input_rows": 1000 + number,
        "output_rows": 300,
        "late_rows": 1 if number % 10 == 9 else 0,
        "watermark": BEGAN + every * number - 12,
        "newest_event": BEGAN + every * number - 2,
        "run": "one",
    }
    return replace(BASE, **(given | changes))
