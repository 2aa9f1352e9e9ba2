"""Benchmarks: seeded workloads, peers in the same run, figures as ratios."""
