"""The command ``thetajoin``."""

from thetajoin.cli.entry import main

__all__ = ["main"]
