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
