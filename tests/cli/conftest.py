"""The command as a user types it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from thetajoin.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process: exit code, stdout, stderr."""

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["thetajoin", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return call


@pytest.fixture
def refused(run: Run) -> Callable[..., str]:
    """Runs a command that must end with exit code 1 and one line, which is returned."""

    def call(*words: object) -> str:
        code, out, err = run(*words)
        assert (code, out) == (1, "")
        assert err.count("\n") == 1
        assert err.startswith("thetajoin: ")
        assert "Traceback" not in err
        assert "shows where" not in err
        return err

    return call
