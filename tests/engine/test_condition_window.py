"""A condition that bounds two event times from both sides says the window itself."""

from __future__ import annotations

import pyarrow as pa
import pytest

import thetajoin as tj
from thetajoin.engine.condition_window import infer_window
from thetajoin.predicate import compile_condition

SCHEMA = pa.schema(
    {
        "t": pa.timestamp("us", "UTC"),
        "u": pa.timestamp("us", "UTC"),
        "n": pa.int64(),
        "x": pa.float64(),
    }
)
MINUTES_10 = "INTERVAL 10 MINUTES"


def window(before=None, after=None, time="t"):
    return tj.TimeWindow(before=before, after=after, time=time)


@pytest.mark.parametrize(
    ("on", "wanted"),
    [
        (f"r.t BETWEEN l.t AND l.t + {MINUTES_10}", window(after="10 minutes")),
        (f"r.t >= l.t AND r.t < l.t + {MINUTES_10} AND l.x < r.x", window(after="10 minutes")),
        (f"l.t BETWEEN r.t - {MINUTES_10} AND r.t", window(after="10 minutes")),
        (f"l.t - {MINUTES_10} <= r.t AND r.t <= l.t", window(before="10 minutes")),
        (f"ABS(l.t - r.t) <= {MINUTES_10}", window("10 minutes", "10 minutes")),
        (f"l.t - r.t BETWEEN INTERVAL '0' SECOND AND {MINUTES_10}", window("10 minutes")),
        # what lies outside of a window, which reaches to 0, is left to the condition
        (
            f"r.t > l.t + INTERVAL 1 MINUTE AND r.t < l.t + {MINUTES_10}",
            window(after="10 minutes"),
        ),
        ("l.t = r.t AND l.x < r.x", window(after="1 us")),
        (f"r.u BETWEEN l.t AND l.t + {MINUTES_10}", window(after="10 minutes", time=("t", "u"))),
        (
            f"(r.t BETWEEN l.t AND l.t + {MINUTES_10} AND l.x < r.x) OR "
            "(r.t BETWEEN l.t - INTERVAL 1 HOUR AND l.t AND l.x > r.x)",
            window("1 hour", "10 minutes"),
        ),
        # bounded on one side, or not at all
        ("r.t >= l.t", None),
        (f"r.t <= l.t + {MINUTES_10}", None),
        ("l.x < r.x", None),
        ("r.n BETWEEN l.n AND l.n + 5", None),
        (f"r.t BETWEEN l.t AND l.t + r.n * {MINUTES_10}", None),
        (f"(r.t BETWEEN l.t AND l.t + {MINUTES_10}) OR l.x < r.x", None),
        (f"r.t >= l.t AND r.u <= l.t + {MINUTES_10}", None),
    ],
)
def test_windows(on, wanted):
    assert infer_window(compile_condition(on, SCHEMA, SCHEMA), ["t", "u"], ["t", "u"]) == wanted


def test_only_event_times_count():
    condition = compile_condition(f"r.t BETWEEN l.t AND l.t + {MINUTES_10}", SCHEMA, SCHEMA)
    assert infer_window(condition, ["u"], ["t"]) is None
    assert infer_window(condition, ["t"], []) is None
