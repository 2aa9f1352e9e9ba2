"""Plots of a benchmark's figures, made from what was measured and nothing else.

``python -m benchmarks.plots REPORT.json FOLDER`` draws them from a report that was kept.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from thetajoin.errors import OptionError


def plot_curves(curves: dict[str, Any], folder: Path) -> list[Path]:
    """One picture a curve, named after its figure; needs matplotlib.

    Fewer than four places make no curve: those are bars, a group for each place.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, curve in curves.items():
        figure = _figure((6.4, 4.0))
        axes = figure.subplots()
        at, lines = curve["at"], curve["lines"]
        if len(at) < 4:
            _draw_bars(axes, at, lines)
        else:
            _draw_lines(axes, at, lines)
        lowest = min(min(values) for values in lines.values())
        highest = max(max(values) for values in lines.values())
        if lowest > 0 and highest / lowest > 20:
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 1.15 * highest)
        axes.yaxis.set_major_formatter(lambda value, _: short(value))
        axes.yaxis.set_minor_formatter("")
        axes.set(title=curve["title"], xlabel=curve["x"], ylabel=curve["y"])
        axes.grid(axis="y", alpha=0.3)
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=110)
        made.append(path)
    return made


def short(value: float, base: int = 1000) -> str:
    """A number for an axis: 1.2M rather than 1.2 and 1e6 in a corner.

    >>> [short(value) for value in (0, 0.25, 64, 16_000, 1_200_000, 3e9)], short(131072, 1024)
    (['0', '0.25', '64', '16K', '1.2M', '3G'], '128K')
    """
    for power, letter in ((3, "G"), (2, "M"), (1, "K")):
        if abs(value) >= base**power:
            return f"{value / base**power:.3g}{letter}"
    return f"{value:.3g}"


def _draw_lines(axes: Any, at: list[Any], lines: dict[str, list[float]]) -> None:
    """Lines over numbers, or over names at equal distances."""
    named = any(isinstance(x, str) for x in at)
    for label, values in lines.items():
        axes.plot(range(len(at)) if named else at, values, marker="o", label=label)
    if not named and min(at) > 0 and max(at) / min(at) >= 8:
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
    axes.set_xticks(range(len(at)) if named else at, [_place(x) for x in at])


def _draw_bars(axes: Any, at: list[Any], lines: dict[str, list[float]]) -> None:
    """Bars side by side at each place."""
    width = 0.8 / len(lines)
    for number, (label, values) in enumerate(lines.items()):
        left = [place - 0.4 + (number + 0.5) * width for place in range(len(at))]
        bars = axes.bar(left, values, width=0.9 * width, label=label)
        axes.bar_label(bars, [short(value) for value in values], fontsize=8, padding=2)
    axes.set_xticks(range(len(at)), [_place(x) for x in at])


def _place(x: Any) -> str:
    if isinstance(x, str):
        return x
    return short(x, 1024 if x == int(x) and int(x).bit_count() == 1 else 1000)


def _figure(size: tuple[float, float]) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OptionError("--plot needs matplotlib: pip install 'thetajoin[plot]'") from error
    return Figure(figsize=size, layout="constrained")


OURS, THEIRS = "#c2410c", "#94a3b8"


def plot_panels(
    panels: dict[str, dict[str, float]], unit: str, path: Path, *, columns: int | None = None
) -> Path:
    """A bar for each name in each panel, the quickest first; ours stands out. Needs matplotlib.

    Panels stand in rows of `columns`, by default in one row. Beside a bar is its value, and how
    many times as long as ours it took.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = min(columns or len(panels), len(panels))
    numbers = [len(taken) for taken in panels.values()]
    most = [max(numbers[first : first + columns]) for first in range(0, len(panels), columns)]
    # A bar is as high in every panel, with room for the title above.
    heights = [0.85 + 0.33 * number for number in most]
    figure = _figure((4.2 * columns, 0.4 + sum(heights)))
    shape = {"height_ratios": heights}
    places = figure.subplots(len(most), columns, squeeze=False, gridspec_kw=shape).ravel()
    for place, (title, taken) in enumerate(panels.items()):
        axes = places[place]
        names = sorted(taken, key=lambda name: -taken[name])
        values = [taken[name] for name in names]
        colours = [OURS if name == "thetajoin" else THEIRS for name in names]
        bars = axes.barh(names, values, color=colours, height=0.62)
        axes.bar_label(bars, [_beside(value, taken) for value in values], fontsize=9)
        axes.set_xlim(0, 1.55 * max(values))
        axes.set_ylim(len(names) - most[place // columns] - 0.5, len(names) - 0.5)
        axes.set_title(title, fontsize=10, loc="left", fontweight="bold")
        axes.set_xticks([])
        axes.tick_params(length=0, labelsize=9)
        for label in axes.get_yticklabels():
            if label.get_text() == "thetajoin":
                label.set(color=OURS, fontweight="bold")
        axes.spines[:].set_visible(False)
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    figure.suptitle(f"{unit}\n", fontsize=10, x=0.01, ha="left")
    figure.savefig(path, dpi=130)
    return path


def _beside(value: float, taken: dict[str, float]) -> str:
    ours = taken.get("thetajoin")
    ratio = (
        "" if ours is None or value == ours else f"   ({float(f'{value / ours:.2g}'):g} x as long)"
    )
    return f" {float(f'{value:.2g}'):g}{ratio}"


def redraw(report: Path, folder: Path) -> list[Path]:
    """The pictures of a benchmark from what ``python -m benchmarks NAME --json`` has printed."""
    from benchmarks.harness import Report
    from benchmarks.names import BENCHMARKS

    kept = json.loads(report.read_text())
    module = import_module(BENCHMARKS.modules[kept["name"]])
    given = {part: kept.get(part, {}) for part in ("figures", "details", "curves")}
    made: list[Path] = module.plot(Report(kept["name"], **given), folder)
    return made


if __name__ == "__main__":
    redraw(Path(sys.argv[1]), Path(sys.argv[2]))
