"""The benchmarks of what the papers compare."""
