"""Spark's errors in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from thetajoin.errors import ThetaJoinError, one_line

_OURS = re.compile(r"^(?:[\w.]+: )*thetajoin\.errors\.\w+: (.+)$", re.MULTILINE)
_RAISED = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|Interrupt): .+)$", re.M)
_TRACE = re.compile(r"\s*(at |\.\.\. |JVM stacktrace|== )")
# What the bridge to the JVM says first, and then the error itself.
_BRIDGE = re.compile(r"An error occurred while calling \S+\n: (?:[\w$]+\.)*(.+)")
_LONGEST = 500  # characters
_NO_STORE = re.compile(r'No FileSystem for scheme "([\w.+-]+)"')
NO_STORE = (
    "Spark cannot read files at {}:// without a connector of Hadoop's: name it under [spark] "
    "packages, or copy the files to a folder"
)
FULL_DISK = "No space left on device"
NO_SPACE = (
    "no space is left on a disk of the executors (spark.local.dir), of the checkpoint or of the "
    "sink: make room and start the query again, nothing is lost"
)


def reason(error: BaseException) -> str:
    """The line of an error that says why: ours, else what Python raised, else Spark's first.

    >>> reason(Exception("Job aborted.\\n  at x\\nthetajoin.errors.DataError: division by zero\\n"))
    'division by zero'
    >>> reason(Exception("Traceback:\\n  File x\\nKeyError: 'k'\\n\\n  at org.Spark"))
    "KeyError: 'k'"
    >>> reason(Exception("[UNABLE] Cannot infer the schema.\\n  at org.Spark"))
    '[UNABLE] Cannot infer the schema.'
    >>> reason(
    ...     Exception("An error occurred while calling o68.x.\\n: a.b.ConfigException: bad\\n at x")
    ... )
    'ConfigException: bad'
    >>> reason(Exception("Job aborted: java.io.IOException: No space left on device\\n  at x"))[:29]
    'no space is left on a disk of'
    """
    text = str(error)
    raised = _OURS.findall(text)
    if not raised and FULL_DISK in text:
        return NO_SPACE
    scheme = None if raised else _NO_STORE.search(text)
    if scheme:
        return NO_STORE.format(scheme[1])
    raised = raised or _RAISED.findall(text) or _BRIDGE.findall(text)
    lines = [line for line in text.splitlines() if line.strip() and not _TRACE.match(line)]
    told = one_line(raised[-1] if raised else lines[0] if lines else type(error).__name__)
    return told if len(told) <= _LONGEST else told[: _LONGEST - 3] + "..."


@contextmanager
def plain_errors(what: str) -> Iterator[None]:
    """Errors of Spark's as one line of ours."""
    try:
        yield
    except Exception as error:
        # The bridge's own error, for what Spark has not taken for one of its own; only PySpark
        # with a JVM has its class.
        if not isinstance(error, PySparkException) and type(error).__name__ != "Py4JJavaError":
            raise
        raise ThetaJoinError(f"{what}: {reason(error)}") from error
