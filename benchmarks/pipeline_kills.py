"""A job whose driver is killed in the middle of micro-batches, again and again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

COMMAND = "from thetajoin.cli import main; main()"
LONGEST_S = 600  # of one start of the driver
WITHIN_S = 1.5  # of a micro-batch, the moment of a kill


@dataclass
class Ordeal:
    """Starts of a job's driver, and how they ended."""

    job: Path
    seed: int = 3
    kills: int = 0
    inside: int = field(default=0)  # kills while a micro-batch was begun and not committed
    starts: int = 0

    def run(self, kills: int) -> None:
        """Kill the driver that many times, then let it finish."""
        random = np.random.default_rng(self.seed)
        while self.kills < kills and self._start(random.uniform(0, WITHIN_S)):
            pass
        self._start(None)

    def _start(self, after: float | None) -> bool:
        """Start the driver; kill it that long after a micro-batch began. False if it ended."""
        self.starts += 1
        # A folder that did exist at the last start says nothing of this one: wait for more.
        begun = self._number("commits")
        process = self._process()
        try:
            if after is None:
                self._finish(process)
                return False
            latest = time.monotonic() + LONGEST_S
            while self._number("commits") == begun or not self._inside():
                if process.poll() is not None:
                    self._check(process)
                    return False
                if time.monotonic() > latest:
                    raise RuntimeError(f"no micro-batch within {LONGEST_S} s: {self._read_log()}")
                time.sleep(0.01)
            time.sleep(after)
            if process.poll() is not None:
                self._check(process)
                return False
            self.inside += self._inside()
            self.kills += 1
            return True
        finally:
            self._kill(process)

    def _process(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", COMMAND, "run", self.job.name],
                cwd=self.job.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # its JVM is killed with it
            )

    def _finish(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"the job did not end: {self._read_log()}") from None
        self._check(process)

    def _check(self, process: subprocess.Popen[bytes]) -> None:
        if process.returncode:
            raise RuntimeError(f"the job failed: {self._read_log()}")

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    @property
    def _log(self) -> Path:
        return self.job.with_suffix(".log")

    def _read_log(self) -> str:
        return self._log.read_text(errors="replace")[-400:]

    def _number(self, what: str) -> int:
        """The newest micro-batch that is in one of the checkpoint's logs; -1 for none."""
        folder = self.job.parent / "checkpoint" / what
        names = [name for name in os.listdir(folder) if name.isdigit()] if folder.is_dir() else []
        return max(map(int, names), default=-1)

    def _inside(self) -> bool:
        return self._number("offsets") > self._number("commits")
