"""Long searches for faults: `python -m tests.campaigns NAME [--json]` from a clone."""
