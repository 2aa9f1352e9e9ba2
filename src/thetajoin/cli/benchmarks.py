"""`thetajoin bench NAME`, which was the command of benchmarks and campaigns once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import thetajoin
from thetajoin.cli.terminal import say, screen
from thetajoin.errors import OptionError

CAMPAIGNS = ("fuzz", "simulate", "faults", "soak", "mutation")
WHERE = (
    "benchmarks are run from a checkout: python -m benchmarks NAME, and test campaigns "
    f"({', '.join(CAMPAIGNS)}): python -m tests.campaigns NAME"
)


def hand_over(words: Sequence[str]) -> int:
    """Run what is meant, where the package is part of a checkout; its exit code."""
    root = Path(thetajoin.__file__).resolve().parents[2]
    if not (root / "benchmarks" / "__main__.py").exists():
        raise OptionError(WHERE)
    module = "tests.campaigns" if words and words[0] in CAMPAIGNS else "benchmarks"
    say(screen(errors=True), f"thetajoin bench has become python -m {module}")
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, check=False).returncode
