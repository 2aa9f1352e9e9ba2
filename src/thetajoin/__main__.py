"""``python -m thetajoin`` is the command ``thetajoin``."""

from thetajoin.cli import main

main()
