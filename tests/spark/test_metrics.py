"""Metrics: what Prometheus and OpenTelemetry are told is what the micro-batches said."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("prometheus_client", reason="the extra 'metrics' is missing")

from prometheus_client.parser import text_string_to_metric_families

from spark.progresses import BASE, progress
from spark.test_follow import Query
from thetajoin.errors import OptionError
from thetajoin.jobs import metrics
from thetajoin.jobs.metrics import MEASURES, UNIT_MEASURES

EXAMPLES = Path(__file__).parents[2] / "examples" / "monitoring"


def scraped(endpoint: metrics.Endpoint) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    with urlopen(endpoint.address, timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def endpoint() -> Iterator[metrics.Endpoint]:
    made = metrics.endpoint(0)
    yield made
    made.stop()


def test_the_endpoint_has_the_numbers_of_the_micro_batches(endpoint: metrics.Endpoint) -> None:
    told = endpoint.metrics
    told.begin("job")
    batches = [progress(number, units=BASE.units) for number in range(10)]
    for p in batches:
        told.add("job", p)
    found = scraped(endpoint)

    def of(name: str, **labels: str) -> float:
        return found[f"thetajoin_{name}", tuple(sorted({"query": "job", **labels}.items()))]

    assert of("batches_total") == 10
    assert of("input_rows_total") == sum(p.input_rows for p in batches)
    assert of("matches_total") == sum(p.matches for p in batches)
    assert of("late_rows_total") == sum(p.late_rows for p in batches) == 1
    assert of("batch_seconds_count") == 10
    assert of("batch_seconds_sum") == pytest.approx(sum(p.batch_ms for p in batches) / 1000)
    assert of("batch_seconds_bucket", le="1.0") == 10
    assert of("batch_seconds_bucket", le="0.5") == 2
    assert of("watermark_lag_seconds") == 10
    assert of("watermark_timestamp_seconds") == batches[-1].watermark
    assert of("state_bytes") == batches[-1].state_bytes
    assert of("unit_imbalance") == pytest.approx(batches[-1].imbalance)
    assert of("running") == 1
    assert of("failures_total") == 0
    unit = {"join": "thetajoin_0", "unit": "1"}
    assert of("unit_matches_total", **unit) == 10 * BASE.units[1].matches
    assert of("unit_seconds_total", **unit) == pytest.approx(10 * BASE.units[1].ms / 1000)
    assert of("unit_window_rows", **unit) == 5000
    told.end("job", "it broke")
    found = scraped(endpoint)
    assert (of("running"), of("failures_total")) == (0, 1)


def test_what_is_not_known_is_not_told(endpoint: metrics.Endpoint) -> None:
    endpoint.metrics.add(
        "job", progress(0, watermark=None, units=(), imbalance=None, output_rows=None)
    )
    names = {name for name, _ in scraped(endpoint)}
    assert "thetajoin_input_rows_total" in names
    # A watermark of 0 would look as if it were decades behind.
    unknown = ("watermark_timestamp_seconds", "watermark_lag_seconds", "unit_imbalance")
    assert names.isdisjoint(f"thetajoin_{name}" for name in (*unknown, "output_rows_total"))


def test_it_is_on_loopback_and_a_taken_port_is_an_error(endpoint: metrics.Endpoint) -> None:
    assert endpoint.address == f"http://127.0.0.1:{endpoint.port}/metrics"
    with pytest.raises(OptionError, match=f"on 127.0.0.1:{endpoint.port}: Address already in use"):
        metrics.endpoint(endpoint.port)
    with pytest.raises(OptionError, match=r"served on no\.such\.host:0"):
        metrics.endpoint(0, "no.such.host")


def test_any_query_can_be_served() -> None:
    query: Any = Query()
    query.name, query.id = None, "an-id"
    served = metrics.serve(query, port=0)
    try:
        query.report(0, 1, 2)
        query.over.set()
        assert served.follower is not None
        assert served.follower.wait(10)
        found = scraped(served)
        assert found["thetajoin_batches_total", (("query", "an-id"),)] == 3
        assert found["thetajoin_running", (("query", "an-id"),)] == 0
    finally:
        served.stop()


def test_the_examples_use_metrics_that_exist(endpoint: metrics.Endpoint) -> None:
    endpoint.metrics.begin("job")
    endpoint.metrics.add("job", progress(0))
    known = {name for name, _ in scraped(endpoint)}
    files = sorted(EXAMPLES.glob("*.*"))
    assert {"alerts.yml", "grafana.json"} <= {file.name for file in files}
    for file in files:
        used = set(re.findall(r"\bthetajoin_\w+", file.read_text()))
        assert used <= known, f"{file.name}: {used - known}"
    used = set(re.findall(r"\bthetajoin_\w+", (EXAMPLES / "alerts.yml").read_text()))
    assert len(used) >= 5
    board = json.loads((EXAMPLES / "grafana.json").read_text())
    places = [panel["gridPos"] for panel in board["panels"]]
    assert len({(p["x"], p["y"]) for p in places}) == len(places)
    assert all(p["x"] >= 0 and p["x"] + p["w"] <= 24 for p in places)
    assert all(panel["targets"] for panel in board["panels"] if panel["type"] != "row")


def test_the_page_lists_every_metric(endpoint: metrics.Endpoint) -> None:
    endpoint.metrics.begin("job")
    endpoint.metrics.add("job", progress(0))
    page = (EXAMPLES.parents[1] / "docs" / "monitoring.md").read_text()
    listed = set(re.findall(r"^\| `(thetajoin_\w+)`", page, re.MULTILINE))
    ends = r"_(created|bucket|count|sum)$"
    known = {name if listed & {name} else re.sub(ends, "", name) for name, _ in scraped(endpoint)}
    counted = {name.removesuffix("_total") for name in listed}
    assert listed <= known
    assert {name.removesuffix("_total") for name in known} == counted


# OpenTelemetry.


def test_opentelemetry_gets_the_same_numbers() -> None:
    pytest.importorskip("opentelemetry.sdk", reason="the extra 'otlp' is not installed")
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from thetajoin.jobs.metrics import Telemetry, provider

    reader = InMemoryMetricReader()
    told = Telemetry(provider(reader).get_meter("test"))
    told.begin("job")
    for number in range(3):
        told.add("job", progress(number))
    told.end("job", None)
    data: Any = reader.get_metrics_data()
    found = {
        metric.name: metric.data.data_points
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
    }
    wanted = {f"thetajoin.{m.name}" for m in (*MEASURES, *UNIT_MEASURES)} | {"thetajoin.running"}
    assert set(found) == wanted
    assert found["thetajoin.input_rows"][0].value == 3003
    assert found["thetajoin.batch_seconds"][0].count == 3
    assert found["thetajoin.running"][0].value == 0
    units = {point.attributes["unit"]: point.value for point in found["thetajoin.unit_matches"]}
    assert units == {unit.unit: 3 * unit.matches for unit in BASE.units}


def test_a_collector_gets_them_over_http() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="no extra 'otlp'")
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )

    from thetajoin.jobs.metrics import Telemetry, otlp, provider

    got: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    meters = provider(otlp(f"http://127.0.0.1:{server.server_port}"), service="mine")
    Telemetry(meters.get_meter("test")).add("job", progress(0))
    meters.shutdown()
    server.shutdown()
    server.server_close()
    path, body = got[0]
    assert path == "/v1/metrics"
    sent = ExportMetricsServiceRequest.FromString(body).resource_metrics[0]
    assert "mine" in str(sent.resource)
    names = {metric.name for metric in sent.scope_metrics[0].metrics}
    assert {"thetajoin.input_rows", "thetajoin.batch_seconds", "thetajoin.unit_seconds"} <= names
