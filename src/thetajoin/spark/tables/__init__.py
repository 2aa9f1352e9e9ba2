"""Joins of two tables on Spark."""
