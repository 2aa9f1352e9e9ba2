"""Plots of a benchmark's curves, made from what was measured and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thetajoin.errors import OptionError


def plot_curves(curves: dict[str, Any], folder: Path) -> list[Path]:
    """One picture a curve, named after its figure; needs matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OptionError("--plot needs matplotlib: pip install 'thetajoin[plot]'") from error
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, curve in curves.items():
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.subplots()
        at = curve["at"]
        named = any(isinstance(x, str) for x in at)
        for label, values in curve["lines"].items():
            axes.plot(range(len(at)) if named else at, values, marker="o", label=label)
        if named:
            axes.set_xticks(range(len(at)), at)
        elif min(at) > 0 and max(at) / min(at) >= 8:
            axes.set_xscale("log", base=2)
            axes.set_xticks(at, [f"{x:g}" for x in at])
            axes.minorticks_off()
        lowest = min(min(v) for v in curve["lines"].values())
        highest = max(max(v) for v in curve["lines"].values())
        if lowest > 0 and highest / lowest > 20:
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 1.08 * highest)
        axes.set(title=curve["title"], xlabel=curve["x"], ylabel=curve["y"])
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=110)
        made.append(path)
    return made


OURS, THEIRS = "#c2410c", "#94a3b8"


def plot_panels(
    panels: dict[str, dict[str, float]], unit: str, path: Path, *, columns: int | None = None
) -> Path:
    """A bar for each name in each panel, the quickest first; ours stands out. Needs matplotlib.

    Panels stand in rows of `columns`, by default in one row.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OptionError("--plot needs matplotlib: pip install 'thetajoin[plot]'") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = min(columns or len(panels), len(panels))
    numbers = [len(taken) for taken in panels.values()]
    most = [max(numbers[first : first + columns]) for first in range(0, len(panels), columns)]
    # A bar is as high in every panel, with room for the title above.
    heights = [0.8 + 0.33 * number for number in most]
    figure = Figure(figsize=(3.4 * columns, 0.3 + sum(heights)), layout="constrained")
    shape = {"height_ratios": heights}
    places = figure.subplots(len(most), columns, squeeze=False, gridspec_kw=shape).ravel()
    for place, (title, taken) in enumerate(panels.items()):
        axes = places[place]
        names = sorted(taken, key=lambda name: -taken[name])
        values = [taken[name] for name in names]
        colours = [OURS if name == "thetajoin" else THEIRS for name in names]
        bars = axes.barh(names, values, color=colours, height=0.62)
        axes.bar_label(bars, [f" {value:.2g}" for value in values], fontsize=9)
        axes.set_xlim(0, 1.22 * max(values))
        axes.set_ylim(len(names) - most[place // columns] - 0.5, len(names) - 0.5)
        axes.set_title(title, fontsize=9, loc="left")
        axes.set_xticks([])
        axes.tick_params(length=0, labelsize=9)
        for label in axes.get_yticklabels():
            if label.get_text() == "thetajoin":
                label.set(color=OURS, fontweight="bold")
        axes.spines[:].set_visible(False)
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    figure.supxlabel(unit, fontsize=9)
    figure.savefig(path, dpi=130)
    return path
