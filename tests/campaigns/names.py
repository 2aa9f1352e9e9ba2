"""The campaigns by their names."""

from __future__ import annotations

from benchmarks.command import Suite

CAMPAIGNS = Suite(
    "campaign",
    "python -m tests.campaigns",
    {
        "fuzz": "campaigns.fuzz",
        "queries": "campaigns.queries",
        "simulate": "campaigns.simulate",
        "interrupts": "campaigns.interrupts",
        "sequences": "campaigns.sequences",
        "faults": "campaigns.faults",
        "soak": "campaigns.soak",
        "mutation": "campaigns.mutation",
        "upgrade": "campaigns.upgrade",
    },
    linux_only=("faults", "mutation", "soak"),
    faults=("wrong", "lost", "duplicate", "raw_errors"),
)
