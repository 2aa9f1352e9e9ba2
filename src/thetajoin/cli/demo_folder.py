"""The demo's results folder: an earlier one stays until a new one is complete."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from thetajoin.cli.files import real
from thetajoin.errors import OptionError, ThetaJoinError

MADE_BY = "thetajoin demo"


@contextmanager
def results_folder(out: Path) -> Iterator[None]:
    """A new folder while the demo runs; an earlier demo's is back if it fails or is stopped.

    The earlier one is put aside rather than the new one made elsewhere and moved: Spark lists a
    stream's files by their full paths. What a failed demo has left is kept, beside an earlier one.
    """
    place = real(out)
    aside = place.with_name(f".{place.name}.earlier")
    _check(out)
    if aside.is_dir():  # of a demo that was killed, whose own folder is of no use
        shutil.rmtree(place, ignore_errors=True)
    elif place.is_dir() and any(place.iterdir()):
        os.rename(place, aside)
    try:
        _begin(out)
        yield
    except BaseException as error:
        told = isinstance(error, ThetaJoinError)
        if not aside.is_dir():
            if not told:
                shutil.rmtree(place, ignore_errors=True)
            raise
        failed = place.with_name(f"{place.name}-failed")
        if told:
            shutil.rmtree(failed, ignore_errors=True)
            os.rename(place, failed)
        shutil.rmtree(place, ignore_errors=True)
        os.rename(aside, place)
        if told:
            raise ThetaJoinError(f"{error}; what it has left is in {failed}") from error
        raise
    shutil.rmtree(aside, ignore_errors=True)


def write_summary(out: Path, summary: dict[str, Any]) -> None:
    """Write what is to be known of a demo, and that a demo has made this folder."""
    text = json.dumps({"made_by": MADE_BY, **summary}, indent=2)
    (out / "summary.json").write_text(text + "\n")


def _check(out: Path) -> None:
    """Refuse what is no folder, or not an earlier demo's."""
    if out.exists() and not out.is_dir():
        raise OptionError(f"{out} is a file: choose another folder with --out")
    if not out.is_dir() or not any(out.iterdir()):
        return
    try:
        ours = json.loads((out / "summary.json").read_text()).get("made_by") == MADE_BY
    except (OSError, ValueError, AttributeError):
        ours = False
    if not ours:
        raise OptionError(f"{out} is not a demo's results: choose another folder with --out")


def _begin(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_summary(out, {"finished": False})
    except OSError as error:
        raise OptionError(f"cannot write to {out}: {error.strerror}") from error
