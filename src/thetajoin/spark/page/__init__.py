"""A page about a running query: what it has done, how long it took, what it keeps."""
