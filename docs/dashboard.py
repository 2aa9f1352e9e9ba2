"""Takes the picture of the live page, docs/img/dashboard.png, from a real run of a real job.

    python docs/dashboard.py docs/img/dashboard.png [--seconds 120] [--dark]

Two streams of power readings are written, a file each a second, while `thetajoin dashboard` joins
them. The job is stopped and started again on the way. Needs Spark, the extra `page`, selenium,
Chromium and its driver.
"""

from __future__ import annotations

import argparse
import math
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

JOB = """
query = "SELECT dc1.id, dc2.id AS other FROM dc1, dc2 WHERE dc1.rp < dc2.rp AND dc1.cp > dc2.cp"
checkpoint = "checkpoint"
trigger = "2 seconds"

[sources.dc1]
path = "dc1"
stream = true
watermark = "ts 5 seconds"

[sources.dc2]
path = "dc2"
stream = true
watermark = "ts 5 seconds"

[window]
time = "10 seconds"
on = "ts"

[sink]
path = "matches"
"""
COMMAND = "from thetajoin.cli import main; main()"
BEFORE_RESTART = 0.55  # of the seconds


def write(folder: Path, number: int, side: int) -> None:
    """One second of a stream: rows a little out of order, now and then a late one."""
    random = np.random.default_rng(2 * number + side)
    rows = int(1500 + 600 * math.sin(number / 9) + random.integers(200))
    behind = random.exponential(0.6, rows)
    if number % 23 == 19:
        behind[:3] += 30
    power, moments = random.random(rows), ((time.time() - behind) * 1e6).astype("int64")
    table = pa.table(
        {
            "id": np.arange(rows) + number * 10_000,
            "ts": pa.array(moments, pa.timestamp("us", "UTC")),
            "rp": power,
            "cp": power + (random.random(rows) - (0.49 if side == 0 else 0.51)) * 0.0004,
        }
    )
    made = folder / f".{number}.tmp"
    parquet.write_table(table, made)
    made.rename(folder / f"{number:06d}.parquet")


class Writer(threading.Thread):
    """Writes both streams until it is to leave."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folders = [folder / "dc1", folder / "dc2"]
        for made in self.folders:
            made.mkdir()
        self.leave = threading.Event()
        self.second()

    def second(self, number: int = 0) -> None:
        """Write one second."""
        for side, folder in enumerate(self.folders):
            write(folder, number, side)

    def run(self) -> None:
        """Write a second every second."""
        number = 1
        while not self.leave.wait(1):
            self.second(number)
            number += 1


def start(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """Start the job; its process and the page's address."""
    command = [sys.executable, "-c", COMMAND, "dashboard", "power.toml", "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        found = re.search(r"http://\S+", line)
        if found:
            return process, found[0]
    raise SystemExit("the job did not start")


def stop(process: subprocess.Popen[str]) -> None:
    """As Ctrl-C would."""
    process.send_signal(signal.SIGINT)
    process.wait(60)


def photograph(address: str, out: Path, *, dark: bool) -> None:
    """The whole page as a picture."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(word)
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        shade = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [shade]})
        size = {"width": 1380, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(address)
        time.sleep(4)
        size["height"] = browser.execute_script("return document.documentElement.scrollHeight")
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        time.sleep(3)
        browser.save_screenshot(str(out))
    finally:
        browser.quit()


def main() -> None:
    """Run the job and take the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--dark", action="store_true")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="thetajoin-page-"))
    (folder / "power.toml").write_text(JOB)
    writer = Writer(folder)
    writer.start()
    process, address = start(folder)
    try:
        time.sleep(given.seconds * BEFORE_RESTART)
        stop(process)
        process, address = start(folder)
        time.sleep(given.seconds * (1 - BEFORE_RESTART))
        photograph(address, given.out, dark=given.dark)
    finally:
        stop(process)
        writer.leave.set()
        writer.join()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
