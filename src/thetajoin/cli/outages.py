"""A broker that goes away while a job runs: told when it does not answer, and when it is back.

Kafka's client waits for a broker without a word. A micro-batch that takes long is no sign of one
that is gone, so the broker is asked, by the client that the job uses too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from thetajoin.spark.connectors.specs import TopicSink, TopicSource

QUIET_S = 5.0  # without an end of what Spark is doing, before a broker is asked
AGAIN_S = 15.0  # between two questions; each takes some seconds at most
LOOK_S = 1.0

Place = TopicSource | TopicSink


class Outages:
    """Watches a query that reads and writes topics.

    answers: whether the broker of a topic is there; called on a thread of its own, as it may take
    long. tell: takes a line. clock: seconds.
    """

    def __init__(
        self,
        query: Any,
        places: Sequence[Place],
        answers: Callable[[Place], bool],
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
        done = self._doing(batches)
        if done is None or done != self._done:
            self._done, self._moved = done, now
        quiet = now - self._moved >= QUIET_S and now - self._asked >= AGAIN_S
        # One that is away is asked until it answers: a query may be idle by then.
        if quiet or (self._told and now - self._asked >= QUIET_S):
            self._ask(now)
        self._say()

    def _doing(self, batches: int) -> tuple[bool, str, int] | None:
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

    def _say(self) -> None:
        away, told = self._away, self._told
        self._told = away
        for servers in sorted(away - told):
            self._tell(f"no Kafka broker answers at {servers}: the job waits for it")
        for servers in sorted(told - away):
            self._tell(f"the Kafka broker at {servers} answers again")
