"""A cluster in one process, driven by one seed: the streaming join's own units under every fault.

`cases` has what is joined, `history` draws one history from a seed, runs it and compares it with
the naive join; `cluster` is Spark, `store` its state store, `world` everything a process sees of
its machine, and `disk` the files. `run` goes through many histories.
"""
