"""Running a benchmark and showing its figures."""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.table import Table

from thetajoin import registry
from thetajoin.bench.harness import Report
from thetajoin.cli.places import check_writable
from thetajoin.cli.terminal import literal, say, screen
from thetajoin.errors import OptionError

# Modules with a function `run(progress, scale) -> Report`, imported when they are asked for. Its
# further keyword arguments, whole numbers or words as their defaults are, are options of the
# command. Some modules have `plot(report, folder) -> paths` as well.
NAMES = {
    "engine": "thetajoin.bench.engine",
    "aggregates": "thetajoin.bench.aggregates",
    "faults": "thetajoin.bench.faults",
    "fit-engines": "thetajoin.bench.fit_engines",
    "fuzz": "thetajoin.bench.fuzz",
    "joins": "thetajoin.bench.joins",
    "mutation": "thetajoin.bench.mutation",
    "pipeline": "thetajoin.bench.pipeline",
    "scale-out": "thetajoin.bench.scale_out",
    "simulate": "thetajoin.bench.simulate",
    "soak": "thetajoin.bench.soak",
    "spark-batch": "thetajoin.bench.spark_batch",
    "spark-stream": "thetajoin.bench.spark_stream",
    "start": "thetajoin.bench.start",
    **registry.BENCHMARKS,
}
# These look at the processes of the machine.
LINUX_ONLY = ("faults", "mutation", "pipeline", "scale-out", "soak", "spark-stream")


def run_benchmark(
    name: str,
    *,
    as_json: bool,
    scale: float,
    plot: Path | None = None,
    words: Sequence[str] = (),
) -> None:
    """Run the named benchmark; progress goes to stderr, and only to a terminal.

    `plot` is a folder for pictures of what some benchmarks measure, `words` are the options that
    only this benchmark has, as typed: ``--cases 1000``.
    """
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(NAMES)}"
        raise OptionError(f"no benchmark {name!r}: {hint}")
    if not 0 < scale < math.inf:
        raise OptionError(f"--scale must be a number above 0, not {scale}")
    if name in LINUX_ONLY and not Path("/proc/self/stat").exists():
        raise OptionError(f"benchmark {name!r} reads Linux's /proc, which is not here")
    progress = screen(errors=True)

    def measuring(what: str) -> None:
        if progress.is_terminal:
            progress.print(f"measuring {literal(what)} ...", style="dim")

    module = importlib.import_module(NAMES[name])
    if plot is not None and not hasattr(module, "plot"):
        raise OptionError(f"benchmark {name!r} has no plots: leave --plot out")
    options = _own_options(name, module.run, words)
    if plot is not None:
        check_writable(plot, plot)
    report: Report = module.run(measuring, scale, **options)
    if plot is not None:
        plot.mkdir(parents=True, exist_ok=True)
        module.plot(report, plot)
    if as_json:
        print(report.to_json())
    else:
        show(report, scale)


def _own_options(
    name: str, run: Callable[..., Report], words: Sequence[str]
) -> dict[str, int | str]:
    """The options that only one benchmark has, read from the command's words."""
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
            raise OptionError(f"bench {name} has no option {option!r}: it has {has}")
        value = left.pop(0) if left else ""
        if isinstance(known[option.removeprefix("--")], str):
            found[option.removeprefix("--")] = value
            continue
        try:
            found[option.removeprefix("--")] = int(value.replace("_", ""))
        except ValueError:
            raise OptionError(f"{option} {value}: give a whole number") from None
    return found


def show(report: Report, scale: float = 1.0) -> None:
    """The figures as a table a person can read; targets are those of tables of full size."""
    targets = report.targets if scale == 1 else {}
    name = f"thetajoin bench {report.name}"
    table = Table(
        title=literal(name if scale == 1 else f"{name} --scale {scale:g}"), title_justify="left"
    )
    table.add_column("figure")
    table.add_column("measured", justify="right")
    if targets:
        table.add_column("target", justify="right")
    for key, value in report.figures.items():
        shown = "not measured" if value is None else f"{value:.3g}"
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
    for found in report.details.get("scripts", []):
        for line in ("", *found.splitlines()):
            say(screen(), line)
