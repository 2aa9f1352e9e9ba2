"""Running a job over streams, on a Spark of this machine."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from thetajoin.errors import OptionError, ThetaJoinError
from thetajoin.jobs.job_file import CheckedQuery, Job, poison_checkpoint, poison_folders
from thetajoin.jobs.sources import explain_failure, find_columns, list_topics
from thetajoin.jobs.systems import TopicSink, TopicSource
from thetajoin.jobs.watchers import Watchers

try:
    import fcntl
except ImportError:  # Windows has none: there Spark's own check is all there is
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from thetajoin.jobs.progress import Follower, JoinProgress
    from thetajoin.spark.unit_spec import StreamSettings

REFRESH_S = 0.2  # between two pictures of the totals; Ctrl-C is heard at once
QUIET_S = 5.0  # without an end of what Spark is doing, before a broker is asked
AGAIN_S = 15.0  # between two questions; each takes some seconds at most
LOOK_S = 1.0


class View(Protocol):
    """What shows a running stream to whoever started it."""

    def add(self, progress: JoinProgress) -> None:
        """Take in a micro-batch; it is shown with the next refresh."""

    def tell(self, text: str) -> None:
        """Show a line of text."""

    def refresh(self) -> None:
        """Show the numbers as they are now."""


@contextmanager
def only_job_on(checkpoint: Path | None) -> Iterator[None]:
    """Refuse a checkpoint that another job of this machine runs on.

    Spark notices two queries on one checkpoint only when both have run a micro-batch, and a sink
    may have taken the rows of both by then. So a job holds a lock beside its checkpoint for as long
    as it runs; the system lets go of it when the process ends, however it ends.
    """
    if checkpoint is None or fcntl is None:
        yield
        return
    place = checkpoint.with_name(f"{checkpoint.name}.lock")
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip()
            who = f" (process {holder})" if holder else ""
            raise OptionError(
                f"another job{who} runs on the checkpoint {checkpoint}: stop it first, or give "
                "this one a checkpoint of its own"
            ) from None
        except OSError:  # a file system that has no locks
            yield
            return
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def plan_stream(
    job: Job, compiled: Callable[[Job, StreamSettings], CheckedQuery]
) -> tuple[CheckedQuery, Any]:
    """The job's query, and its result as a streaming DataFrame that nothing reads yet."""
    try:
        from thetajoin.spark.failures import plain_errors
        from thetajoin.spark.stream import read_accepted
        from thetajoin.spark.unit_spec import StreamSettings
    except ImportError as error:
        raise OptionError("a streaming job needs Spark: pip install 'thetajoin[spark]'") from error
    accepts = () if job.checkpoint is None else read_accepted(str(job.checkpoint))
    settings = StreamSettings(job.late, accepts, job.routing)
    query = compiled(job, settings)
    with plain_errors("the streaming query could not start"):
        found = query.run()
    if job.late is not None and len(settings.planned) != 1:
        raise OptionError(
            f"late = {job.late!r} is for one join of two streams, and this query has "
            f"{len(settings.planned)}"
        )
    return query, found


class RunningJob:
    """A job whose streaming query has been started.

    show: takes each micro-batch's rows and number, where the job has no sink.
    """

    def __init__(self, job: Job, found: Any, show: Callable[[Any, int], None]) -> None:
        from thetajoin.jobs.sinks import start_query
        from thetajoin.spark.failures import plain_errors

        self._job, self._session = job, found.sparkSession
        self._closed = threading.Event()  # nobody reads any more what is shown
        with plain_errors("the streaming query could not start"):
            self._query = start_query(job, found, show, self._closed)
            self._poison = PoisonQueries(job, self._session)

    def follow(self, view: View, watchers: Watchers) -> Follower:
        """Wait until the query ends or somebody stops it; view and watchers see it run."""
        from thetajoin.jobs.progress import Follower

        job, session = self._job, self._session
        follower = Follower(
            self._query, view.add, why=lambda failure: explain_failure(failure, job, session)
        )
        watchers.follow(follower)
        outages = Outages(
            self._query,
            list_topics(job),
            self._answers,
            lambda text: watchers.warn(text, view.tell),
        )
        try:
            with follower:
                while not follower.wait(REFRESH_S):
                    view.refresh()
                    outages.look(follower.batches)
                    if self._closed.is_set():
                        raise BrokenPipeError
                    self._poison.check()
            self._poison.finish()
        finally:
            with suppress(Exception):  # of a Spark that is being stopped as well
                self._query.stop()
                self._poison.stop()
        return follower

    def _answers(self, place: TopicSource | TopicSink) -> bool:
        from thetajoin.jobs.kafka import does_answer

        return does_answer(self._session, place)


class PoisonQueries:
    """Keep messages that cannot be read, by a query of their own for each topic.

    The job's own query counts them and passes over them. These read the topic too and write them
    to a folder, each once, with their place in the topic.
    """

    def __init__(self, job: Job, session: Any) -> None:
        self._job, self._session = job, session
        folders = poison_folders(job)
        self._queries = {name: self._start(name, folder) for name, folder in folders.items()}

    def check(self) -> None:
        """Raise the error of one that has failed."""
        for name, query in self._queries.items():
            failure = None if query.isActive else query.exception()
            if failure is not None:
                why = explain_failure(failure, self._job, self._session)
                raise ThetaJoinError(f"source {name!r}: messages cannot be kept aside: {why}")

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

    def _start(self, name: str, folder: Path) -> Any:
        from thetajoin.jobs.kafka import read_poison
        from thetajoin.jobs.progress import POISON

        job, source = self._job, self._job.sources[name].outside
        assert isinstance(source, TopicSource)
        assert job.checkpoint is not None
        rows = read_poison(self._session, source, find_columns(self._session, job, name, source))
        writer = rows.writeStream.format("parquet").option("path", str(folder))
        writer = writer.option("checkpointLocation", str(poison_checkpoint(job.checkpoint, name)))
        return writer.queryName(f"{POISON}{name}").trigger(**job.spark_trigger).start()


class Outages:
    """Tell when a broker no longer answers, and when it is back.

    Kafka's client waits for a broker without a word. A micro-batch that takes long is no sign of
    one that is gone, so the broker is asked, by the client that the job uses too.

    answers: whether the broker of a topic is there; called on a thread of its own, as it may take
    long. tell: called with a line. clock: in seconds.
    """

    def __init__(
        self,
        query: Any,
        places: Sequence[TopicSource | TopicSink],
        answers: Callable[[TopicSource | TopicSink], bool],
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._query, self._answers, self._tell, self._clock = query, answers, tell, clock
        self._brokers = {place.servers: place for place in places}
        self._looked = self._moved = clock()
        self._asked = float("-inf")
        self._done: tuple[bool, str, int] | None = None
        self._asking: threading.Thread | None = None
        self._away: frozenset[str] = frozenset()
        self._told: frozenset[str] = frozenset()

    def look(self, batches: int) -> None:
        """See whether the query goes on; `batches` is how many micro-batches it has done."""
        now = self._clock()
        if not self._brokers or now - self._looked < LOOK_S:
            return
        self._looked = now
        done = self._find_work(batches)
        if done is None or done != self._done:
            self._done, self._moved = done, now
        quiet = now - self._moved >= QUIET_S and now - self._asked >= AGAIN_S
        # One that is away is asked until it answers: a query may be idle by then.
        if quiet or (self._told and now - self._asked >= QUIET_S):
            self._ask(now)
        self._tell_changes()

    def _find_work(self, batches: int) -> tuple[bool, str, int] | None:
        """What Spark is busy with; None if with nothing."""
        with suppress(Exception):  # of a query that has just ended
            status = self._query.status
            if status["isTriggerActive"]:
                return True, str(status["message"]), batches
        return None

    def _ask(self, now: float) -> None:
        if self._asking is None or not self._asking.is_alive():
            self._asked = now
            self._asking = threading.Thread(
                target=self._look_for_brokers, name="thetajoin-outages", daemon=True
            )
            self._asking.start()

    def _look_for_brokers(self) -> None:
        away = (s for s, place in self._brokers.items() if not self._answers(place))
        self._away = frozenset(away)

    def _tell_changes(self) -> None:
        away, told = self._away, self._told
        self._told = away
        for servers in sorted(away - told):
            self._tell(f"no Kafka broker answers at {servers}: the job waits for it")
        for servers in sorted(told - away):
            self._tell(f"the Kafka broker at {servers} answers again")
