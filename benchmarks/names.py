"""The benchmarks by their names."""

from __future__ import annotations

from benchmarks.command import Suite

BENCHMARKS = Suite(
    "benchmark",
    "python -m benchmarks",
    {
        "engine": "benchmarks.engine",
        "aggregates": "benchmarks.aggregates",
        "fit-engines": "benchmarks.fit_engines",
        "joins": "benchmarks.joins",
        "pipeline": "benchmarks.pipeline",
        "scale-out": "benchmarks.scale_out",
        "spark-batch": "benchmarks.spark_batch",
        "spark-stream": "benchmarks.spark_stream",
        "start": "benchmarks.start",
        "partitionings": "benchmarks.papers.partitionings",
        "structures": "benchmarks.papers.structures",
    },
    linux_only=("pipeline", "scale-out", "spark-stream"),
)
