"""Window structures: one a file, each answering which stored rows lie in a probe's intervals."""
