"""Runs the code on a page of documentation and compares what it gives with what the page shows.

A page runs from top to bottom in one namespace and one empty folder:

- ``python``: comment lines right below a statement are what it prints; below an expression, its
  value. A comment behind an expression that begins as a literal does is its value as well, with
  words after a colon if you like.
- ``pycon``, or a block that begins with ``>>>``: an interactive session.
- ``console``: lines that begin with ``$`` are commands, the lines below are what they print. If a
  file that is not there is shown (``$ cat file``), it is written.
- ``sh``: every line is a command.
- ``sql``: runs over the tables that the page has by then. ``toml``: must be readable.
- In any other block, `thetajoin` commands must exist, and their options. So must what is run by
  name from a checkout, anywhere on a page.
- ``<!-- not run: reason -->`` keeps the block below it from being run, ``<!-- file: name -->``
  writes it to a file. Nothing is run that a reader does not see.

``...`` in shown output stands for anything, and white space counts as one space.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tokenize
import tomllib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCED = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_NOTE = re.compile(r"<!--\s*(not run|file):(.*?)-->", re.DOTALL)
_LITERAL = re.compile(r"[-\d\"'\[({]|True\b|False\b")
_SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# Commands that change a machine, want the network, or take minutes: continuous integration does
# what they do in other ways.
_SET_UP = ("pip", "make", "git", "docker", "podman", "twine", "source", "cd")
_LONG = ("demo",)
# Benchmarks and campaigns, which take minutes or hours.
_BY_NAME = re.compile(r"\bpython -m (benchmarks|tests\.campaigns) ([^\s#`|][^#`|\n]*)")
_OPTION = re.compile(r"(?<!\S)\[?(--[a-z][\w-]*)")
_QUERY = """
__import__("thetajoin").sql({!r}, **{{
    name: table for name, table in globals().items() if hasattr(table, "columns")
}})
"""


@dataclass(frozen=True)
class Block:
    """A piece of a page: `kind` is its language, `about` a file's name or why it is not run."""

    kind: str
    text: str
    line: int
    about: str = ""


def blocks_of(text: str) -> list[Block]:
    """A page's blocks, in order."""
    found: list[Block] = []
    fences = list(_FENCED.finditer(text))
    inside = [range(fence.start(), fence.end()) for fence in fences]
    notes = [n for n in _NOTE.finditer(text) if not any(n.start() in span for span in inside)]
    for fence in fences:
        indent, kind, body = fence.groups()
        body = re.sub(f"^{indent}", "", body, flags=re.MULTILINE)
        # `x` where the note is below the block.
        above = [n for n in notes if re.fullmatch(r"\s*", text[n.end() : fence.start()] or "x")]
        about, does = (above[-1][2].strip(), above[-1][1]) if above else ("", "")
        if does == "not run":
            kind = "not run"
        elif does == "file":
            kind = "file"
        elif body.startswith(">>> "):
            kind = "pycon"
        found.append(Block(kind, body, _line(text, fence.start(3)), about))
    return found


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def needs_spark(page: Path) -> bool:
    """Whether a page's code uses Spark."""
    return any(
        block.kind in ("python", "pycon") and re.search(r"\b(py)?spark\b", block.text)
        for block in blocks_of(page.read_text())
    )


def run_page(
    page: Path, folder: Path, names: dict[str, Any] | None = None, *, without: str | None = None
) -> list[str]:
    """Run a page in `folder`, the working directory, and tell what is not as shown.

    Blocks with the text `without` in them are left out.
    """
    names = {"__name__": "page"} if names is None else names
    wrong = [f"{page.relative_to(ROOT)}: {what}" for what in _unknown_names(page.read_text())]
    for block in blocks_of(page.read_text()):
        if without is not None and without in block.text:
            continue
        where = f"{page.relative_to(ROOT)}:{block.line}"
        if block.kind == "not run":
            if len(block.about.split()) < 3:
                wrong.append(f"{where}: say in a few words why this is not run")
        elif block.kind == "file":
            Path(folder, block.about).write_text(block.text)
        elif block.kind == "python":
            wrong += _python(block, where, names)
        elif block.kind == "pycon":
            wrong += _session(block, where, names)
        elif block.kind == "console":
            wrong += _console(block, where, folder)
        elif block.kind == "sh":
            wrong += _console(replace(block, text=_prompted(block.text)), where, folder)
        elif block.kind == "sql":
            wrong += _python(replace(block, text=_QUERY.format(block.text)), where, names)
        elif block.kind == "toml":
            tomllib.loads(block.text)
        else:
            wrong += _mentioned(block, where)
    return wrong


def _differs(shown: str, got: str) -> bool:
    return not doctest.OutputChecker().check_output(shown.strip() + "\n", got.strip() + "\n", _SAME)


def _python(block: Block, where: str, names: dict[str, Any]) -> list[str]:
    """Run a block statement by statement; what was printed since the last look must be as shown."""
    comments = dict(_comments(block.text))
    lines = block.text.splitlines()
    printed, wrong = io.StringIO(), []
    for statement in ast.parse(block.text).body:
        end = statement.end_lineno or statement.lineno
        value = None
        try:
            with contextlib.redirect_stdout(printed):
                if isinstance(statement, ast.Expr):
                    value = eval(_compiled(ast.Expression(statement.value), block, where), names)
                else:
                    exec(_compiled(ast.Module([statement], []), block, where), names)
        except Exception:
            return [*wrong, f"{where}: {traceback.format_exc(limit=-3)}"]
        beside = comments.get(end) if lines[end - 1].split("#")[0].strip() else None
        said = (beside or "").removeprefix("#").strip()
        stated = value is not None and _LITERAL.match(said)
        if stated and _differs(said, repr(value)) and not said.startswith(f"{value!r}:"):
            wrong.append(f"{where}: `{lines[end - 1]}` gives {value!r}")
        below = []
        while end + 1 + len(below) in comments and lines[end + len(below)].startswith("#"):
            below.append(re.sub("^# ?", "", lines[end + len(below)]))
        if below:
            if value is not None:
                print(value if isinstance(value, str) else repr(value), file=printed)
            if _differs("\n".join(below), printed.getvalue()):
                wrong.append(f"{where}: line {end} prints\n{printed.getvalue()}")
            printed.seek(0)
            printed.truncate()
    return wrong


def _compiled(tree: Any, block: Block, where: str) -> Any:
    return compile(tree, where, "eval" if isinstance(tree, ast.Expression) else "exec")


def _comments(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _session(block: Block, where: str, names: dict[str, Any]) -> list[str]:
    """An interactive session; of an error its last line is shown, with or without its module."""
    wrong = []
    for example in doctest.DocTestParser().get_examples(block.text):
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(example.source, where, "single"), names)
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=printed)
        if _differs(example.want, printed.getvalue()):
            wrong.append(f"{where}: {example.source.strip()} gives\n{printed.getvalue()}")
    return wrong


def _console(block: Block, where: str, folder: Path) -> list[str]:
    wrong = []
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        while command.endswith("\\"):
            more, _, shown = shown.partition("\n")
            command = command[:-1] + more.strip()
        words = command.split()
        if words[0] == "cat" and len(words) == 2 and not (folder / words[1]).exists():
            (folder / words[1]).write_text(shown)
            continue
        if _stays_unrun(command):
            wrong += _mentioned(Block("", command, block.line), where)
            continue
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env={
                **os.environ,
                "PATH": f"{_commands(folder)}:{os.environ['PATH']}",
                "COLUMNS": "100",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stdout + done.stderr
        if (done.returncode and not shown) or (shown.strip() and _differs(shown, said)):
            wrong.append(f"{where}: $ {command} gives\n{said}")
    return wrong


def _prompted(text: str) -> str:
    return re.sub(r"^(?=\S)", "$ ", text, flags=re.MULTILINE)


def _stays_unrun(command: str) -> bool:
    words = command.split()
    return (
        words[0] in _SET_UP
        or words[:3] == ["python", "-m", "venv"]
        or (words[0] == "thetajoin" and words[1] in _LONG)
        or _BY_NAME.search(command) is not None
    )


def _commands(folder: Path) -> Path:
    """A folder on the PATH where `thetajoin` and `python` are those of this interpreter."""
    made = folder / ".commands"
    if not made.exists():
        made.mkdir()
        source = shlex.quote(str(ROOT / "src"))
        python = f"PYTHONPATH={source} exec {shlex.quote(sys.executable)}"
        for name, call in {
            "thetajoin": f"{python} -c 'from thetajoin.cli import main; main()' \"$@\"",
            "python": f'{python} "$@"',
        }.items():
            (made / name).write_text(f"#!/bin/sh\n{call}\n")
            (made / name).chmod(0o755)
    return made


def _mentioned(block: Block, where: str) -> list[str]:
    """`thetajoin` commands that are named but not run: they and their options must exist."""
    wrong = []
    for line in re.findall(r"^(?:\.venv/bin/)?thetajoin ([^#\n]*)", block.text, re.MULTILINE):
        name = line.split()[0]
        if name.startswith("-"):
            continue
        known = _options(*line.split()[:2])
        if known is None:
            wrong.append(f"{where}: there is no command `thetajoin {name}`")
        else:
            missing = set(_OPTION.findall(line)) - known
            wrong += [f"{where}: `thetajoin {name}` has no option {option}" for option in missing]
    return wrong


def _unknown_names(text: str) -> list[str]:
    """Benchmarks and campaigns that a page names and that do not exist, nor their options."""
    from benchmarks.names import BENCHMARKS
    from campaigns.names import CAMPAIGNS

    suites = {"benchmarks": BENCHMARKS, "tests.campaigns": CAMPAIGNS}
    common = {"--json", "--scale", "--plot"}
    wrong = []
    for module, line in _BY_NAME.findall(text):
        suite, name = suites[module], line.split()[0]
        known = {one: common | set(options.split()) for one, options, _ in suite.describe()}
        if name not in {*known, "NAME"}:
            wrong.append(f"there is no {suite.thing} {name}")
        elif name in known:
            missing = set(_OPTION.findall(line)) - known[name]
            wrong += [f"{suite.thing} {name} has no option {option}" for option in missing]
    return wrong


def _options(name: str, part: str = "") -> set[str] | None:
    """The options of a command, or of a part of one; None if there is no such command."""
    import typer

    from thetajoin.cli.app import app

    command = typer.main.get_command(app).commands.get(name)
    if command is not None and hasattr(command, "commands"):
        command = command.commands.get(part)
    if command is None:
        return None
    return {option for parameter in command.params for option in parameter.opts}
