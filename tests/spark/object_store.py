"""An S3 on this machine: moto's server, in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow import fs

# moto wants an older python-dateutil than this project's pins: it may have an environment of its
# own, whose Python this names.
PYTHON = "THETAJOIN_MOTO_PYTHON"
BUCKET = "lake"
# Nothing listens there; where a client would ask the machine for credentials, it is to ask here.
NOWHERE = "http://127.0.0.1:9"
_STARTED_S = 60


def moto_python() -> str | None:
    """A Python that has moto."""
    return sys.executable if importlib.util.find_spec("moto") else os.environ.get(PYTHON)


def environment(endpoint: str) -> dict[str, str]:
    """What a user sets for a store that is not Amazon's."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "hunter22",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_METADATA_ENDPOINT": NOWHERE,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def running(python: str, folder: Path) -> Iterator[str]:
    """The address of a server with one bucket, which ends with the block."""
    log = folder / "moto.log"
    words = [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with log.open("w") as out:
        server = subprocess.Popen(words, stdout=out, stderr=out, env=own)
    try:
        endpoint = _address(log, server)
        store = fs.S3FileSystem(
            access_key="somebody",
            secret_key="hunter22",
            region="us-east-1",
            endpoint_override=endpoint,
            allow_bucket_creation=True,
        )
        store.create_dir(BUCKET)
        yield endpoint
    finally:
        server.terminate()
        server.wait()


def _address(log: Path, server: subprocess.Popen[bytes]) -> str:
    end = time.monotonic() + _STARTED_S
    while time.monotonic() < end and server.poll() is None:
        found = re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text())
        if found:
            return found[1]
        time.sleep(0.1)
    raise RuntimeError(f"moto's server did not start: {log.read_text()[-500:]}")
