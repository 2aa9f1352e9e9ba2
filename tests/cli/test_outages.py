"""A broker that goes away is told once, and so is its return; a long micro-batch is no outage."""

from __future__ import annotations

from collections.abc import Callable

from thetajoin.jobs.stream import Outages
from thetajoin.jobs.systems import TopicSink, TopicSource

PLACES = (TopicSource("h:1", "a"), TopicSource("h:1", "b"), TopicSink("k:2", "c"))


class Query:
    """A query that does as it is told."""

    def __init__(self) -> None:
        self.message, self.busy = "Getting offsets", True

    @property
    def status(self) -> dict[str, object]:
        return {"isTriggerActive": self.busy, "message": self.message}


class Scene:
    """A minute's worth of looks at a query, with brokers that are there or not."""

    def __init__(self) -> None:
        self.query, self.now, self.away, self.lines = Query(), 0.0, set[str](), list[str]()
        self.asked: list[str] = []
        self.outages = Outages(
            self.query, PLACES, self._answers, self.lines.append, lambda: self.now
        )

    def _answers(self, place: TopicSource | TopicSink) -> bool:
        self.asked.append(place.servers)
        return place.servers not in self.away

    def passes(self, seconds: int, change: Callable[[int], None] = lambda at: None) -> None:
        for at in range(seconds):
            self.now += 1
            change(at)
            self.outages.look(0)
            if self.outages._asking is not None:
                self.outages._asking.join()


def test_a_broker_that_goes_and_comes_back() -> None:
    scene = Scene()
    scene.away = {"h:1"}
    scene.passes(60)
    assert scene.lines == ["no Kafka broker answers at h:1: the job waits for it"]
    # Whatever the query does, only the broker itself can tell that it is back.
    scene.query.busy = False
    scene.passes(20)
    assert len(scene.lines) == 1
    scene.away = set()
    scene.passes(20)
    assert scene.lines[1:] == ["the Kafka broker at h:1 answers again"]
    assert set(scene.asked) == {"h:1", "k:2"}


def test_nobody_is_asked_while_it_goes_on() -> None:
    scene = Scene()
    scene.away = {"h:1"}

    def trigger(at: int) -> None:
        scene.query.message = f"batch {at // 4}"

    scene.passes(60, trigger)
    scene.query.busy = False
    scene.passes(60)
    assert (scene.asked, scene.lines) == ([], [])


def test_a_long_micro_batch_is_no_outage() -> None:
    scene = Scene()
    scene.passes(60)
    assert scene.lines == []
    assert 0 < scene.asked.count("h:1") <= 5
