"""The command: parses its words, runs a campaign, prints what came of it."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

# Modules of the tests import each other by their names below this folder.
sys.path.insert(0, str(Path(__file__).parents[1]))

NAMES = ("interrupts", "sequences")


def main() -> int:
    """Run the campaign that was asked for; 1 if something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns")
    commands = parser.add_subparsers(dest="name", required=True)
    for name in NAMES:
        campaign = importlib.import_module(f"campaigns.{name}")
        of_name = commands.add_parser(name, help=(campaign.__doc__ or "").splitlines()[0])
        of_name.add_argument("--json", action="store_true", help="print one JSON object")
        campaign.add_arguments(of_name)
    args = parser.parse_args()
    found = {"name": args.name, **importlib.import_module(f"campaigns.{args.name}").run(args)}
    if args.json:
        print(json.dumps(found))
    else:
        for key, value in found["figures"].items():
            print(f"{key:>12}  {value}")
        for line in found["details"].get("wrong", ()):
            print(line)
    return 1 if found["figures"]["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
