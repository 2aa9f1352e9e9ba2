"""Kafka topics, tables of Delta and Iceberg, and databases, as sources and sinks on Spark."""
