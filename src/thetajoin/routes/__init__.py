"""Partitionings of two streams for a theta-join, as pure functions of their keys."""
