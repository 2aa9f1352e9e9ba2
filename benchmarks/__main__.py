"""The command ``python -m benchmarks NAME``."""

from __future__ import annotations

from benchmarks.command import main
from benchmarks.names import BENCHMARKS

main(BENCHMARKS)
