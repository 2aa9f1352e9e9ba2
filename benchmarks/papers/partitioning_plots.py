"""Plots of the partitionings' measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.harness import Report
from benchmarks.plots import short

CASES = ("uniform", "zipf", "wind", "prices", "normal")
MEASURES = {
    "cartesian_products": "Cartesian products",
    "balance_in": "balance in",
    "balance_out": "balance out",
}


def draw(report: Report, folder: Path) -> list[Path]:
    """Images of joins of two and of three, and of partitions and windows in series.

    Milliseconds are left out: with so few elements they say more about the machine.
    """
    import matplotlib

    matplotlib.use("Agg")
    paths = [
        _bars(report, folder / "partitionings.png"),
        _three(report, folder / "partitionings-three.png"),
    ]
    for name in ("partitions", "windows"):
        for case, rows in report.details[name].items():
            paths.append(_lines(rows, name, case, folder / f"partitionings-{name}-{case}.png"))
    return paths


def _bars(report: Report, path: Path) -> Path:
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(len(CASES), len(MEASURES), figsize=(11, 2.6 * len(CASES)))
    for axes, case in zip(grid, CASES, strict=True):
        rows = report.details[case]["rows"]
        for ax, (measure, title) in zip(axes, MEASURES.items(), strict=True):
            ax.bar(list(rows), [row[measure] for row in rows.values()], color="#4477aa")
            ax.set_title(f"{case}: {title}", fontsize=9)
            ax.tick_params(labelsize=8)
            if measure == "cartesian_products":
                ax.axhline(rows["prefap"]["results"], color="#cc3311", linestyle=":")
            if measure.startswith("balance"):
                ax.axhline(1.0, color="#cc3311", linestyle=":")
    return _save(figure, path)


def _three(report: Report, path: Path) -> Path:
    """Figures 9 and 10; like the paper without those that compare nearly all pairs."""
    import matplotlib.pyplot as plt

    shown = ("cfs", "ftj", "prefap", "default")
    cases = report.details["three-way"].values()
    figure, grid = plt.subplots(1, len(cases), figsize=(10, 3))
    for ax, case in zip(grid, cases, strict=True):
        rows = {way: case["rows"][way] for way in shown}
        ax.bar(list(rows), [row["cartesian_products"] for row in rows.values()], color="#4477aa")
        ax.axhline(rows["prefap"]["results"], color="#cc3311", linestyle=":")
        ax.set_title(f"{case['title']}: Cartesian products", fontsize=9)
        ax.tick_params(labelsize=8)
    return _save(figure, path)


def _lines(rows: dict[Any, Any], name: str, case: str, path: Path) -> Path:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(MEASURES), figsize=(11, 3))
    steps = list(rows)
    for ax, (measure, title) in zip(axes, MEASURES.items(), strict=True):
        for way in ("ftj", "prefap", "default"):
            ax.plot(steps, [rows[step][way][measure] for step in steps], marker="o", label=way)
        if measure.startswith("balance"):
            ax.set_ylim(0.98, max(1.2, ax.get_ylim()[1]))
        ax.set_title(f"{case}: {title}", fontsize=9)
        ax.set_xlabel(name, fontsize=8)
        ax.tick_params(labelsize=8)
    axes[0].legend(fontsize=8)
    return _save(figure, path)


def _save(figure: Any, path: Path) -> Path:
    import matplotlib.pyplot as plt

    for axes in figure.axes:
        axes.yaxis.set_major_formatter(lambda value, _: short(value))
        axes.yaxis.set_minor_formatter("")
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)
    return path
