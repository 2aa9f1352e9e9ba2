"""A query's numbers for monitoring systems: one list of measures, for Prometheus and OpenTelemetry.

```
from thetajoin.jobs import metrics

server = metrics.serve(query, port=9464)  # http://127.0.0.1:9464/metrics
```

`watch` adds a query to a registry of your own, for an endpoint that you have already, and
`Telemetry(meter).watch(query)` to a meter of OpenTelemetry's, where names have dots.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from thetajoin.errors import OptionError
from thetajoin.jobs.progress import Follower, JoinProgress

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from prometheus_client import CollectorRegistry

Kind = Literal["counter", "gauge", "histogram"]
PREFIX = "thetajoin"
# Upper ends of the buckets of a micro-batch's seconds.
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
HOST = "127.0.0.1"
PORT = 9464
EVERY_S = 10.0  # between two reports to a collector
TIMEOUT_S = 3.0  # a collector that is not there must not hold up the end of a job


@dataclass(frozen=True)
class Measure:
    """A number of a query or a unit.

    of: gives it from a `JoinProgress` or `UnitProgress`, None where there is none; by default it is
    their attribute of that name.
    """

    name: str
    kind: Kind
    help: str
    unit: str = ""
    of: Callable[[Any], float | None] | None = None

    def value(self, progress: Any) -> float | None:
        """The number that a micro-batch has."""
        if self.of is not None:
            return self.of(progress)
        found: float | None = getattr(progress, self.name.removeprefix("unit_"))
        return found


def _lag(p: JoinProgress) -> float | None:
    if p.watermark is None or p.newest_event is None:
        return None
    return max(0.0, p.newest_event - p.watermark)


MEASURES = (
    Measure("batches", "counter", "Micro-batches that have ended.", of=lambda p: 1),
    Measure("input_rows", "counter", "Rows read from all sources."),
    Measure("matches", "counter", "Pairs that were found."),
    Measure(
        "unmatched_rows", "counter", "Rows that came out without a match.", of=lambda p: p.unmatched
    ),
    Measure("output_rows", "counter", "Rows written, where the sink counts."),
    Measure("late_rows", "counter", "Rows dropped behind the watermark."),
    Measure("null_times", "counter", "Rows without an event time."),
    Measure("cache_misses", "counter", "Indexes that a unit built anew from the state store."),
    Measure(
        "batch_seconds",
        "histogram",
        "How long micro-batches took.",
        "s",
        lambda p: p.batch_ms / 1000,
    ),
    Measure(
        "input_rows_per_second",
        "gauge",
        "How fast rows arrived before the last micro-batch.",
        of=lambda p: p.input_rows_per_s,
    ),
    Measure(
        "processed_rows_per_second",
        "gauge",
        "How fast the last micro-batch went through its rows.",
        of=lambda p: p.rows_per_s,
    ),
    Measure(
        "last_batch_timestamp_seconds",
        "gauge",
        "When the last micro-batch began, since 1970.",
        "s",
        lambda p: p.began or None,
    ),
    Measure(
        "watermark_timestamp_seconds",
        "gauge",
        "The watermark, since 1970.",
        "s",
        lambda p: p.watermark,
    ),
    Measure(
        "watermark_lag_seconds",
        "gauge",
        "The watermark behind the newest event of the last micro-batch.",
        "s",
        _lag,
    ),
    Measure("window_rows", "gauge", "Rows that the units store."),
    Measure("state_bytes", "gauge", "Stored rows, as bytes.", "By"),
    Measure("state_memory_bytes", "gauge", "Memory of the state store.", "By"),
    Measure("index_bytes", "gauge", "Sorted segments, as bytes.", "By"),
    Measure("segments", "gauge", "Sorted segments of all units."),
    Measure(
        "unit_imbalance",
        "gauge",
        "The busiest unit's time over the mean of all.",
        of=lambda p: p.imbalance,
    ),
)

UNIT_MEASURES = (
    Measure("unit_matches", "counter", "Pairs that a unit found."),
    Measure("unit_received_rows", "counter", "Rows sent to a unit.", of=lambda u: u.received),
    Measure("unit_late_rows", "counter", "Late rows that a unit dropped."),
    Measure("unit_seconds", "counter", "How long a unit worked.", "s", lambda u: u.ms / 1000),
    Measure(
        "unit_window_rows",
        "gauge",
        "Rows that a unit stores.",
        of=lambda u: u.window_left + u.window_right,
    ),
    Measure("unit_segments", "gauge", "Segments of a unit."),
    Measure("unit_state_bytes", "gauge", "Stored rows of a unit.", "By"),
)

# Whether the query runs, and how often it has failed, do not come with a micro-batch.
RUNNING = Measure("running", "gauge", "Whether the query runs: 1 or 0.")
FAILURES = Measure("failures", "counter", "How often the query has ended with an error.")


class _Recorder(ABC):
    """Hands queries' measures to a monitoring system; to be called from any thread."""

    def __init__(self) -> None:
        labels, unit_labels = ("query",), ("query", "join", "unit")
        self._query = [(m, self._make(m, labels)) for m in MEASURES]
        self._unit = [(m, self._make(m, unit_labels)) for m in UNIT_MEASURES]
        self._running = self._make(RUNNING, labels)
        self._failures = self._make(FAILURES, labels)

    @abstractmethod
    def _make(self, measure: Measure, labels: tuple[str, ...]) -> Any:
        """What takes in the values of a measure."""

    @abstractmethod
    def _record(self, metric: Any, kind: Kind, value: float, labels: dict[str, Any]) -> None:
        """Take in a value: what is added to a counter, or what a gauge shows from now on."""

    def begin(self, query: str) -> None:
        """Tell of a query before its first micro-batch."""
        self._record(self._running, "gauge", 1, {"query": query})

    def add(self, query: str, progress: JoinProgress) -> None:
        """Take in a micro-batch."""
        self._record_all(self._query, progress, {"query": query})
        for unit in progress.units:
            labels = {"query": query, "join": unit.join, "unit": unit.unit}
            self._record_all(self._unit, unit, labels)

    def end(self, query: str, error: str | None) -> None:
        """Take in that a query has ended."""
        self._record(self._running, "gauge", 0, {"query": query})
        if error is not None:
            self._record(self._failures, "counter", 1, {"query": query})

    def watch(self, query: Any, name: str | None = None) -> Follower:
        """Follow a running query until it ends.

        name: the label `query`; by default the query's name, or its id, which a restart from the
        checkpoint keeps.
        """
        label = name or query.name or str(query.id)
        self.begin(label)
        return Follower(
            query, lambda p: self.add(label, p), lambda error: self.end(label, error)
        ).start()

    def _record_all(
        self, metrics: list[tuple[Measure, Any]], progress: Any, labels: dict[str, Any]
    ) -> None:
        for measure, metric in metrics:
            value = measure.value(progress)
            if value is not None:  # a metric with these labels would begin at 0
                self._record(metric, measure.kind, value, labels)


class Metrics(_Recorder):
    """The metrics of queries in one Prometheus registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        from prometheus_client import CollectorRegistry

        self.registry = CollectorRegistry() if registry is None else registry
        super().__init__()

    def _make(self, measure: Measure, labels: tuple[str, ...]) -> Any:
        from prometheus_client import Counter, Gauge, Histogram

        given: dict[str, Any] = {"namespace": PREFIX, "registry": self.registry}
        if measure.kind == "histogram":
            return Histogram(measure.name, measure.help, labels, buckets=BUCKETS, **given)
        kind = Counter if measure.kind == "counter" else Gauge
        return kind(measure.name, measure.help, labels, **given)

    def _record(self, metric: Any, kind: Kind, value: float, labels: dict[str, Any]) -> None:
        record = {"counter": "inc", "gauge": "set", "histogram": "observe"}[kind]
        getattr(metric.labels(**labels), record)(value)

    def begin(self, query: str) -> None:
        """Tell of a query before its first micro-batch; it has failed 0 times."""
        super().begin(query)
        self._record(self._failures, "counter", 0, {"query": query})


def watch(query: Any, metrics: Metrics, name: str | None = None) -> Follower:
    """Have a running query's numbers in `metrics` until it ends.

    name: the label `query`; by default the query's name, or its id, which a restart from the
    checkpoint keeps.
    """
    return metrics.watch(query, name)


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
    from prometheus_client import start_http_server

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


class Telemetry(_Recorder):
    """The instruments of queries on one meter of OpenTelemetry's."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        super().__init__()

    def _make(self, measure: Measure, labels: tuple[str, ...]) -> Any:
        make = getattr(self._meter, f"create_{measure.kind}")
        return make(f"{PREFIX}.{measure.name}", unit=measure.unit, description=measure.help)

    def _record(self, metric: Any, kind: Kind, value: float, labels: dict[str, Any]) -> None:
        record = {"counter": "add", "gauge": "set", "histogram": "record"}[kind]
        getattr(metric, record)(value, labels)


def provider(*readers: MetricReader, service: str = "thetajoin") -> MeterProvider:
    """A provider of meters whose histograms have the same buckets as Prometheus'."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
    from opentelemetry.sdk.resources import Resource

    buckets = ExplicitBucketHistogramAggregation(BUCKETS)
    return MeterProvider(
        metric_readers=readers,
        resource=Resource.create({"service.name": service}),
        views=[View(instrument_name=f"{PREFIX}.batch_seconds", aggregation=buckets)],
    )


def otlp(address: str) -> MetricReader:
    """Sends to an OpenTelemetry collector over HTTP, every ten seconds and at the end.

    address: such as ``http://localhost:4318``. Headers and certificates come from the usual
    environment variables, ``OTEL_EXPORTER_OTLP_HEADERS`` and so on.
    """
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    at = address.rstrip("/")
    whole = at if at.endswith("/v1/metrics") else f"{at}/v1/metrics"
    exporter = OTLPMetricExporter(endpoint=whole, timeout=TIMEOUT_S)
    return PeriodicExportingMetricReader(exporter, export_interval_millis=EVERY_S * 1000)
