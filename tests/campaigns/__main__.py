"""The command ``python -m tests.campaigns NAME``."""

from __future__ import annotations

import sys
from pathlib import Path

# Modules of the tests import each other by their names below this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.command import main
from benchmarks.harness import ROOT
from campaigns.names import CAMPAIGNS

main(CAMPAIGNS, ROOT / "tests")
