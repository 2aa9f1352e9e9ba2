"""Aggregates over a join's matches, without listing them where the aggregates allow it."""
