"""A query's numbers for OpenTelemetry: the measures of Prometheus, named with dots.

```
from opentelemetry import metrics
from thetajoin.spark.telemetry import Telemetry

Telemetry(metrics.get_meter("my app")).watch(query)
```
"""

from __future__ import annotations

from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

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

EVERY_S = 10.0
TIMEOUT_S = 3.0  # a collector that is not there must not hold up the end of a job


class Telemetry:
    """The instruments of queries on one meter."""

    def __init__(self, meter: Meter) -> None:
        self._query = [(m, _made(meter, m.name, m.kind, m.unit, m.help)) for m in MEASURES]
        self._unit = [(m, _made(meter, m.name, m.kind, m.unit, m.help)) for m in UNIT_MEASURES]
        self._running = _made(meter, RUNNING[0], "gauge", "", RUNNING[1])
        self._failures = _made(meter, FAILURES[0], "counter", "", FAILURES[1])

    def begin(self, query: str) -> None:
        """Tell of a query before its first micro-batch."""
        self._running.set(1, {"query": query})

    def add(self, query: str, progress: JoinProgress) -> None:
        """Take in a micro-batch."""
        for measure, instrument in self._query:
            _tell(instrument, measure.kind, measure.of(progress), {"query": query})
        for unit in progress.units:
            labels = {"query": query, "join": unit.join, "unit": unit.unit}
            for of_unit, instrument in self._unit:
                _tell(instrument, of_unit.kind, of_unit.of(unit), labels)

    def end(self, query: str, error: str | None) -> None:
        """Take in that a query has ended."""
        self._running.set(0, {"query": query})
        if error is not None:
            self._failures.add(1, {"query": query})

    def watch(self, query: Any, name: str | None = None) -> Follower:
        """Follow a running query until it ends."""
        label = name or query.name or str(query.id)
        self.begin(label)
        return Follower(
            query, lambda p: self.add(label, p), lambda error: self.end(label, error)
        ).start()


def _made(meter: Meter, name: str, kind: Kind, unit: str, text: str) -> Any:
    make = {
        "counter": meter.create_counter,
        "gauge": meter.create_gauge,
        "histogram": meter.create_histogram,
    }[kind]
    return make(f"{PREFIX}.{name}", unit=unit, description=text)


def _tell(instrument: Any, kind: Kind, value: float | None, labels: dict[str, Any]) -> None:
    if value is None:
        return
    if kind == "counter":
        instrument.add(value, labels)
    elif kind == "gauge":
        instrument.set(value, labels)
    else:
        instrument.record(value, labels)


def provider(*readers: MetricReader, service: str = "thetajoin") -> MeterProvider:
    """A provider of meters whose histograms have the same buckets as Prometheus'."""
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
    at = address.rstrip("/")
    whole = at if at.endswith("/v1/metrics") else f"{at}/v1/metrics"
    exporter = OTLPMetricExporter(endpoint=whole, timeout=TIMEOUT_S)
    return PeriodicExportingMetricReader(exporter, export_interval_millis=EVERY_S * 1000)
