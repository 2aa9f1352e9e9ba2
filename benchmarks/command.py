"""Modules that are run by name, and showing their figures: the benchmarks and the campaigns."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import inspect
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from benchmarks.harness import Report, import_path
from thetajoin.cli.command import main as run_command
from thetajoin.cli.terminal import literal, say, screen
from thetajoin.errors import OptionError
from thetajoin.jobs.files import check_writable


@dataclass(frozen=True)
class Suite:
    """Modules with a function `run(progress, scale) -> Report`, imported when they are asked for.

    Its further keyword arguments, whole numbers or words as their defaults are, are options of the
    command. Some modules have `plot(report, folder) -> paths` as well. `thing` is what one of them
    is called, `program` what is typed before a name. Those of `linux_only` look at the processes
    of the machine. A figure of `faults` above 0 makes the exit code 1.
    """

    thing: str
    program: str
    modules: Mapping[str, str]
    linux_only: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    def run(
        self,
        name: str,
        *,
        as_json: bool,
        scale: float,
        plot: Path | None = None,
        words: Sequence[str] = (),
    ) -> int:
        """Run one and print its figures; the exit code.

        Progress goes to stderr, and only to a terminal. `plot` is a folder for pictures of what
        some modules measure, `words` are the options that only this one has, as typed:
        ``--cases 1000``.
        """
        if name not in self.modules:
            near = difflib.get_close_matches(name, self.modules, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(self.modules)}"
            raise OptionError(f"no {self.thing} {name!r}: {hint}")
        if not 0 < scale < math.inf:
            raise OptionError(f"--scale must be a number above 0, not {scale}")
        if name in self.linux_only and not Path("/proc/self/stat").exists():
            raise OptionError(f"{self.thing} {name!r} reads Linux's /proc, which is not here")
        progress = screen(errors=True)

        def show_progress(what: str) -> None:
            if progress.is_terminal:
                progress.print(f"measuring {literal(what)} ...", style="dim")

        module = importlib.import_module(self.modules[name])
        if plot is not None and not hasattr(module, "plot"):
            raise OptionError(f"{self.thing} {name!r} has no plots: leave --plot out")
        options = self._own_options(name, module.run, words)
        if plot is not None:
            check_writable(plot, plot)
        report: Report = module.run(show_progress, scale, **options)
        if plot is not None:
            plot.mkdir(parents=True, exist_ok=True)
            for picture in module.plot(report, plot):
                progress.print(f"picture: {literal(picture)}")
        if as_json:
            print(report.to_json())
        else:
            show(report, scale, self.program)
        return int(any((report.figures.get(key) or 0) > 0 for key in self.faults))

    def _own_options(
        self, name: str, run: Callable[..., Report], words: Sequence[str]
    ) -> dict[str, int | str]:
        """The options that only one module has, read from the command's words."""
        known = {
            option.name: option.default
            for option in inspect.signature(run).parameters.values()
            if option.kind is inspect.Parameter.KEYWORD_ONLY
        }
        found: dict[str, int | str] = {}
        left = [part for word in words for part in word.split("=", 1)]
        while left:
            option = left.pop(0)
            if option.removeprefix("--") not in known:
                has = ", ".join(f"--{other}" for other in known) or "none of its own"
                raise OptionError(f"{self.thing} {name} has no option {option!r}: it has {has}")
            value = left.pop(0) if left else ""
            if isinstance(known[option.removeprefix("--")], str):
                found[option.removeprefix("--")] = value
                continue
            try:
                found[option.removeprefix("--")] = int(value.replace("_", ""))
            except ValueError:
                raise OptionError(f"{option} {value}: give a whole number") from None
        return found

    def describe(self) -> Iterator[tuple[str, str, str]]:
        """Each name with its own options and what it is for; nothing is imported for this."""
        for name, module in self.modules.items():
            spec = importlib.util.find_spec(module)
            assert spec is not None
            assert spec.origin is not None
            tree = ast.parse(Path(spec.origin).read_text())
            (run,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "run")
            options = " ".join(f"--{option.arg}" for option in run.args.kwonlyargs)
            about = (ast.get_docstring(tree) or "").partition("\n\n")[0]
            yield name, options, " ".join(about.split())


def main(suite: Suite, *folders: Path) -> None:
    """Be the command that runs one of them, or without a name lists them.

    `folders` are where their modules are imported from, beside the checkout.
    """
    # Spark's Python workers, too, import the modules of what they are sent.
    os.environ["PYTHONPATH"] = import_path(*folders)
    app = _app(suite)

    def call() -> int:
        ended = app(prog_name=suite.program, standalone_mode=False)
        return ended if isinstance(ended, int) else 0

    run_command(call)


def _app(suite: Suite) -> Any:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

    @app.command(
        help=f"Run a {suite.thing}; without NAME, list them with the options that each has.",
        epilog=f"Example: {suite.program} {next(iter(suite.modules))} --scale 0.1",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def command(
        context: typer.Context,
        name: Annotated[str | None, typer.Argument(metavar="NAME", show_default=False)] = None,
        json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
        scale: Annotated[
            float, typer.Option(metavar="X", help="Shrink the work for a quick look, to 0.1 say.")
        ] = 1.0,
        plot: Annotated[
            Path | None, typer.Option(metavar="FOLDER", help="Folder for plots of the figures.")
        ] = None,
    ) -> int:
        if name is None:
            width = max(map(len, suite.modules))
            for one, options, about in suite.describe():
                say(screen(), f"{one:<{width}}  {about}{options and f' [{options}]'}")
            return 0
        return suite.run(name, as_json=json, scale=scale, plot=plot, words=context.args)

    return app


def show(report: Report, scale: float = 1.0, program: str = "python -m benchmarks") -> None:
    """The figures as a table a person can read; targets are those of tables of full size."""
    targets = report.targets if scale == 1 else {}
    name = f"{program} {report.name}"
    table = Table(
        title=literal(name if scale == 1 else f"{name} --scale {scale:g}"), title_justify="left"
    )
    table.add_column("figure")
    table.add_column("measured", justify="right")
    if targets:
        table.add_column("target", justify="right")
    for key, value in report.figures.items():
        shown = "not measured" if value is None else _show(value)
        table.add_row(literal(key), shown, *([literal(targets.get(key, ""))] if targets else []))
    screen().print(table)
    for name, details in report.details.items():
        if not isinstance(details, dict):
            continue
        times = next(
            (v for k, v in details.items() if k == "median" or k.startswith("seconds_per")), None
        )
        if times:
            parts = ", ".join(f"{who} {seconds * 1000:,.1f} ms" for who, seconds in times.items())
            say(screen(), f"{name}: {parts}")
    for found in (*report.details.get("wrong", []), *report.details.get("scripts", [])):
        for line in ("", *found.splitlines()):
            say(screen(), line)


def _show(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
