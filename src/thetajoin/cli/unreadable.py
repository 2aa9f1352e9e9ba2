"""Messages that cannot be read, kept aside by a query of their own for each topic.

The job's own query counts them and passes over them. A second one reads the topic too and writes
them to a folder, each once, with their place in the topic.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thetajoin.cli.jobs import Job, poison_folders
from thetajoin.cli.stream_sources import columns_of, trigger_of, why
from thetajoin.errors import ThetaJoinError
from thetajoin.spark.connectors.specs import TopicSource


def poison_checkpoint(checkpoint: Path, name: str) -> Path:
    """Where the query that keeps a source's messages aside remembers how far it is."""
    return checkpoint.with_name(f"{checkpoint.name}.poison") / name


class Aside:
    """The queries that keep messages aside, running."""

    def __init__(self, job: Job, session: Any) -> None:
        self._job, self._session = job, session
        self._queries = {
            name: _start(job, session, name, folder) for name, folder in poison_folders(job).items()
        }

    def check(self) -> None:
        """Raise the error of one that has failed."""
        for name, query in self._queries.items():
            failure = None if query.isActive else query.exception()
            if failure is not None:
                told = why(failure, self._job, self._session)
                raise ThetaJoinError(f"source {name!r}: messages cannot be kept aside: {told}")

    def finish(self) -> None:
        """Wait until each has read what there is."""
        for query in self._queries.values():
            if query.exception() is None and query.isActive:
                query.processAllAvailable()
        self.check()

    def stop(self) -> None:
        """Stop them all."""
        for query in self._queries.values():
            query.stop()


def _start(job: Job, session: Any, name: str, folder: Path) -> Any:
    from thetajoin.spark.connectors.topics import poison_rows
    from thetajoin.spark.listener import POISON

    source = job.sources[name].outside
    assert isinstance(source, TopicSource)
    assert job.checkpoint is not None
    rows = poison_rows(session, source, columns_of(session, job, name, source))
    writer = rows.writeStream.format("parquet").option("path", str(folder))
    writer = writer.option("checkpointLocation", str(poison_checkpoint(job.checkpoint, name)))
    return writer.queryName(f"{POISON}{name}").trigger(**trigger_of(job)).start()
