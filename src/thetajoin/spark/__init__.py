"""Joins of Spark DataFrames; the only package that imports pyspark."""
