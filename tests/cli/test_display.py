"""What a terminal shows: columns that fit, letters that it has, one line for what goes on."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from rich.cells import cell_len

from thetajoin.cli import display as rows
from thetajoin.cli.display import LiveLine, RunTotals, fit, show_rows
from thetajoin.cli.terminal import screen, show_work


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


class AsciiTerminal(Terminal):
    encoding = "ascii"


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of some width, in place of stdout and stderr; what it was sent."""

    def make(width, kind=Terminal):
        file = kind()
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "xterm")
        for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr("sys.stdout", file)
        monkeypatch.setattr("sys.stderr", file)
        return file

    return make


TABLE = pa.table(
    {
        "number": [1, 20],
        "text": ["a long text that no narrow terminal has room for", None],
        **{f"column_{at}": ["漢字", "é"] for at in range(6)},
        "last": [1.5, 2.0],
    }
)


@pytest.mark.parametrize("width", [1, 10, 20, 40, 80, 120, 300])
def test_a_row_is_a_line(terminal, width):
    file = terminal(width)
    show_rows(screen(), TABLE, "2 rows")
    lines = re.sub(r"\x1b\[\d*m", "", file.getvalue()).splitlines()
    table, footer = lines[:-1], lines[-1]
    assert len(table) == 6  # two rows, a head, three lines between
    if width >= 40:
        assert all(cell_len(line) <= width for line in table)
        assert "last" in lines[1]
    assert ("columns fit here" in footer) == (width < 120)


@pytest.mark.parametrize("kind", [Terminal, AsciiTerminal])
@pytest.mark.parametrize("drawn", [1, 7, 1000])
def test_many_rows_look_like_the_first(terminal, monkeypatch, kind, drawn):
    """Those that rich does not draw are where it would have drawn them."""
    n = 23
    texts = ["", "a", "漢字" * 3, "é\n", "x" * 90, "e\u0301"]
    table = pa.table({"n": range(n), "long name": ["", *(texts * n)[: n - 1]], "m": [None] * n})
    shown = {}
    for most in (drawn, 10 * n):
        monkeypatch.setattr(rows, "_DRAWN", most)
        file = terminal(50, kind)
        show_rows(screen(), table, "the end")
        shown[most] = file.getvalue()
    assert shown[drawn] == shown[10 * n]
    assert shown[drawn].count("\n") == n + 4 + 1


def test_a_pipe_has_room_for_everything(capsys):
    show_rows(screen(), TABLE)
    out = capsys.readouterr().out
    assert "a long text that no narrow terminal has room for" in out
    assert "column_5" in out


@pytest.mark.parametrize("room", range(1, 120, 7))
def test_fit(room):
    wanted = [3, 40, 8, 1, 25, 9]
    widths, kept = fit(wanted, room)
    assert all(w <= most for w, most in zip(widths, wanted, strict=True))
    assert all(w >= min(8, most) for w, most in zip(widths, wanted, strict=True))
    assert kept == sorted(kept)
    assert kept[0] == 0
    taken = sum(widths[at] + 3 for at in kept) + 1
    assert taken <= room or len(kept) == 1
    if len(kept) == len(wanted) and taken < room - len(wanted):
        assert widths == wanted


def test_a_terminal_without_letters(terminal):
    file = terminal(60, AsciiTerminal)
    show_rows(screen(), pa.table({"é": ["ü" * 40, "…"]}), "2 rows")
    file.getvalue().encode("ascii")
    assert "\\xe9" in file.getvalue()


def test_what_goes_on_is_for_a_terminal(terminal, capsys):
    with show_work("reading [red]\x1b") as tell:
        tell("joining")
    assert capsys.readouterr() == ("", "")
    file = terminal(80)
    with show_work("reading") as tell:
        tell("joining [red]\x1b[2J")
    assert "joining [red]\\x1b[2J" in file.getvalue()


REPORT = (Path(__file__).parent / "progress.json").read_text()


def read(report):
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    from thetajoin.jobs.progress import read_progress

    return read_progress(report)


def test_the_line_of_a_stream():
    progress = read(REPORT)
    totals = RunTotals()
    assert totals.line() == "0 batches; 0 rows in"
    totals.add(progress)
    totals.add(progress)
    line = totals.line()
    assert line.startswith(f"2 batches; {2 * progress.input_rows:,} rows in")
    assert f"; {2 * (progress.matches + progress.unmatched):,} matches; " in line
    assert f"; state {progress.state_bytes / 1e3:.1f} kB; " in line
    assert line.endswith(f"{2 * (progress.late_rows + progress.null_times):,} late")


def test_a_stream_without_state_has_no_such_numbers():
    without = json.loads(REPORT) | {"observedMetrics": {}, "stateOperators": []}
    totals = RunTotals()
    totals.add(read(json.dumps(without)))
    assert "late" not in totals.line()
    assert "matches" not in totals.line()


def test_the_line_is_for_a_terminal(terminal, capsys):
    with LiveLine(screen()) as live:
        live.totals.add(read(REPORT))
        live.refresh()
    assert capsys.readouterr() == ("", "")
    file = terminal(60)
    with LiveLine(screen()) as live:
        live.totals.add(read(REPORT))
        live.refresh()
    shown = file.getvalue()
    assert "1 batch;" in shown
    assert shown.endswith("\x1b[2K")  # nothing stays behind
