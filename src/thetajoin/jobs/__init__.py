"""Jobs: a query from a file, its sources, its sinks, and what watches it while it runs."""
