"""A query's numbers for Prometheus.

```
from thetajoin.spark import metrics

server = metrics.serve(query, port=9464)  # http://127.0.0.1:9464/metrics
```

`watch` adds a query to a registry of your own instead, for an endpoint that you have already.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from thetajoin.errors import OptionError
from thetajoin.spark.follow import Follower
from thetajoin.spark.listener import JoinProgress
from thetajoin.spark.measures import (
    BUCKETS,
    FAILURES,
    MEASURES,
    PREFIX,
    RUNNING,
    UNIT_MEASURES,
    Kind,
)

HOST = "127.0.0.1"
PORT = 9464
_LABELS = ("query",)
_UNIT_LABELS = ("query", "join", "unit")


class Metrics:
    """The metrics of queries in one registry; add micro-batches from any thread."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        self._query = [(m, self._made(m.name, m.kind, m.help, _LABELS)) for m in MEASURES]
        self._unit = [(m, self._made(m.name, m.kind, m.help, _UNIT_LABELS)) for m in UNIT_MEASURES]
        self._running = self._made(RUNNING[0], "gauge", RUNNING[1], _LABELS)
        self._failures = self._made(FAILURES[0], "counter", FAILURES[1], _LABELS)

    def _made(self, name: str, kind: Kind, text: str, labels: tuple[str, ...]) -> Any:
        given: dict[str, Any] = {"namespace": PREFIX, "registry": self.registry}
        if kind == "histogram":
            return Histogram(name, text, labels, buckets=BUCKETS, **given)
        return (Counter if kind == "counter" else Gauge)(name, text, labels, **given)

    def begin(self, query: str) -> None:
        """Tell of a query before its first micro-batch."""
        self._running.labels(query).set(1)
        self._failures.labels(query)

    def add(self, query: str, progress: JoinProgress) -> None:
        """Take in a micro-batch."""
        for measure, metric in self._query:
            _tell(metric, measure.kind, measure.of(progress), (query,))
        for unit in progress.units:
            labels = query, unit.join, str(unit.unit)
            for of_unit, metric in self._unit:
                _tell(metric, of_unit.kind, of_unit.of(unit), labels)

    def end(self, query: str, error: str | None) -> None:
        """Take in that a query has ended."""
        self._running.labels(query).set(0)
        if error is not None:
            self._failures.labels(query).inc()


def _tell(metric: Any, kind: Kind, value: float | None, labels: tuple[str, ...]) -> None:
    if value is None:  # a metric with these labels would begin at 0
        return
    labelled = metric.labels(*labels)
    if kind == "counter":
        labelled.inc(value)
    elif kind == "gauge":
        labelled.set(value)
    else:
        labelled.observe(value)


def watch(query: Any, metrics: Metrics, name: str | None = None) -> Follower:
    """Have a running query's numbers in `metrics` until it ends.

    name: the label `query`; by default the query's name, or its id, which a restart from the
    checkpoint keeps.
    """
    label = name or query.name or str(query.id)
    metrics.begin(label)
    return Follower(
        query, lambda p: metrics.add(label, p), lambda error: metrics.end(label, error)
    ).start()


@dataclass
class Endpoint:
    """A Prometheus endpoint; `stop` it when it is no longer asked."""

    metrics: Metrics
    host: str
    port: int
    follower: Follower | None
    _server: Any
    _thread: threading.Thread

    @property
    def address(self) -> str:
        """What Prometheus is to scrape."""
        return f"http://{self.host}:{self.port}/metrics"

    def stop(self) -> None:
        """Serve no longer."""
        if self.follower is not None:
            self.follower.stop()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


def endpoint(port: int = PORT, host: str = HOST, metrics: Metrics | None = None) -> Endpoint:
    """Serve metrics, on loopback unless another address is given."""
    metrics = metrics or Metrics()
    try:
        server, thread = start_http_server(port, addr=host, registry=metrics.registry)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise OptionError(f"metrics cannot be served on {host}:{port}: {why}") from error
    return Endpoint(metrics, host, server.server_address[1], None, server, thread)


def serve(query: Any, port: int = PORT, host: str = HOST, *, name: str | None = None) -> Endpoint:
    """Serve the numbers of a running query for Prometheus; 0 is any port that is free."""
    served = endpoint(port, host)
    served.follower = watch(query, served.metrics, name)
    return served
