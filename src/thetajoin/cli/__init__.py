"""The command ``thetajoin``."""

from thetajoin.cli.app import main

__all__ = ["main"]
