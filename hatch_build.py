"""Puts compiled kernels into the wheel, so that the first join of a new install compiles nothing.

Where they cannot be made (`THETAJOIN_PURE_WHEEL=1`, a machine without a baseline of its own, a
compiler that fails) the wheel is pure Python and compiles at first use. An editable install has
none: `thetajoin warmup` makes them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledKernels(BuildHookInterface):
    """Compiles the kernels of ordinary joins while a wheel is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile into a folder of its own and add what is there to the wheel."""
        if version == "editable" or os.environ.get("THETAJOIN_PURE_WHEEL", "0") not in ("", "0"):
            return
        self._folder = tempfile.TemporaryDirectory(prefix="thetajoin-wheel-")
        # A build in isolation finds its packages through PYTHONPATH.
        paths = [str(Path(self.root, "src")), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        done = subprocess.run(
            [sys.executable, "-m", "thetajoin.warm", self._folder.name],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        kernels = Path(self._folder.name, "thetajoin")
        if done.returncode != 0 or not any(kernels.rglob("*.kernel")):
            reason = (done.stderr.strip().splitlines() or ["no kernel was made"])[-1]
            self.app.display_warning(f"the wheel has no compiled kernels: {reason}")
            return
        build_data["force_include"][str(kernels)] = "thetajoin/kernels/ready"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()
