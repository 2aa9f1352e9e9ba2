"""Long searches for faults: `python -m tests.campaigns NAME [--json]` from the repository's root."""
