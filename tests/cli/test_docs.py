"""The console examples of docs/command.md, typed as printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "command.md").read_text()
BLOCKS = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    (lines[0], lines[1:])
    for block in BLOCKS
    for lines in (part.splitlines() for part in re.split(r"^\$ ", block, flags=re.M) if part)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files that the page shows with `cat`."""
    made = tmp_path_factory.mktemp("page")
    for command, lines in COMMANDS:
        if command.startswith("cat "):
            (made / command.removeprefix("cat ")).write_text("\n".join(lines) + "\n")
    return made


@pytest.mark.parametrize(
    ("command", "lines"), [(c, lines) for c, lines in COMMANDS if not c.startswith("cat ")]
)
def test_the_page_shows_what_is_printed(folder, run, monkeypatch, command, lines):
    monkeypatch.chdir(folder)
    name, *words = shlex.split(command)
    assert name == "thetajoin"
    code, out, err = run(*words)
    assert code == (1 if lines[0].startswith("thetajoin: ") else 0)
    printed = (out + err).splitlines()
    if lines[-1] == "...":
        lines, printed = lines[:-1], printed[: len(lines) - 1]
    assert printed == lines


def test_the_job_is_one(tmp_path):
    from thetajoin.jobs.job_file import read_job

    [text] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    for side in ("dc1", "dc2"):
        (tmp_path / "streams" / side).mkdir(parents=True)
        (tmp_path / "streams" / side / "0.parquet").touch()
    (tmp_path / "job.toml").write_text(text)
    assert read_job(tmp_path / "job.toml").streaming
