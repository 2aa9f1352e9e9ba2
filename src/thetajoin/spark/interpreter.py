"""Whether Spark's Python workers have this package.

Workers are started by the JVM, with whatever `PYSPARK_PYTHON` was when the session began, or else
the first `python3` of the PATH: from a virtual environment that is another Python, without
thetajoin. Where the workers run on this machine their Python can be asked before a join starts, in
about 0.1 s and once a session; a job that asks one would cost seconds. On a cluster the driver
cannot see their Python, and the tasks say it themselves (`thetajoin.spark.tasks`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any
from weakref import WeakKeyDictionary

from thetajoin import __version__
from thetajoin.spark.session import SparkError

PATIENCE_S = 30.0
_ASK = "import thetajoin; print(thetajoin.__version__)"
_fine: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def check_workers(session: Any) -> None:
    """Refuse a session whose workers, if they run here, cannot import this version of thetajoin."""
    if session in _fine:
        return
    python = _python_here(session)
    if python is not None:
        problem = _problem(python)
        if problem:
            raise SparkError(
                f"Spark's workers run {python}, which {problem}: set the environment variable "
                f"PYSPARK_PYTHON (or spark-submit's spark.pyspark.python) to {sys.executable} "
                "before the Spark session starts"
            )
    _fine[session] = True


def _python_here(session: Any) -> str | None:
    """The workers' Python where they run on this machine and take nothing else along; else None."""
    if type(session).__module__.startswith("pyspark.sql.connect."):
        if "SPARK_LOCAL_REMOTE" not in os.environ:  # the server is elsewhere
            return None
        driver = os.environ.get("PYSPARK_DRIVER_PYTHON", "python3")
        return os.environ.get("PYSPARK_PYTHON", driver)
    context = session.sparkContext
    carried = context.listFiles or any(
        context.getConf().get(key)
        for key in ("spark.submit.pyFiles", "spark.executorEnv.PYTHONPATH", "spark.archives")
    )
    if carried or not context.master.startswith("local"):
        return None
    return str(context.pythonExec)


def _problem(python: str) -> str:
    """What is wrong with a Python, as the end of a sentence; nothing if it will do."""
    try:
        asked = subprocess.run(
            [python, "-c", _ASK], capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
    except OSError as error:
        return f"cannot be started ({error.strerror})"
    except subprocess.TimeoutExpired:  # a machine that is busy is not a mistake
        return ""
    version = asked.stdout.strip()
    if asked.returncode or not version:
        return "has no thetajoin"
    return "" if version == __version__ else f"has thetajoin {version}, not {__version__}"
