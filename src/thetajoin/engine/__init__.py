"""One unit's join: probe, insert, expire, snapshot."""
