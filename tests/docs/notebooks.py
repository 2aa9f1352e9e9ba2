"""Runs a notebook's cells as Jupyter would, without Jupyter.

``python tests/docs/notebooks.py docs/notebooks/*.ipynb`` runs notebooks and keeps what they give.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def run_cells(path: Path, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """The notebook with the outputs of all its cells: text printed, the last value, pictures."""
    import matplotlib

    matplotlib.use("Agg")
    notebook: dict[str, Any] = json.loads(path.read_text())
    names = {"__name__": "notebook"} if names is None else names
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, 1):
        cell["execution_count"] = number
        cell["outputs"] = _outputs("".join(cell["source"]), f"{path.name}[{number}]", number, names)
    return notebook


def _outputs(source: str, where: str, number: int, names: dict[str, Any]) -> list[dict[str, Any]]:
    import matplotlib.pyplot as plt

    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), where, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    shown = value is not None and not source.rstrip().endswith(";")
    if shown and "matplotlib" not in type(value).__module__:
        outputs.append(
            {
                "data": {"text/plain": repr(value).splitlines(keepends=True)},
                "execution_count": number,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    for figure in map(plt.figure, plt.get_fignums()):
        png = io.BytesIO()
        figure.savefig(png, dpi=100, bbox_inches="tight")
        data = {"image/png": base64.b64encode(png.getvalue()).decode()}
        outputs.append({"data": data, "metadata": {}, "output_type": "display_data"})
    plt.close("all")
    return outputs


def texts(notebook: dict[str, Any]) -> list[list[str]]:
    """What each cell printed, and the word `picture` for each picture."""
    return [
        [
            "".join(output.get("text") or output["data"].get("text/plain", "picture"))
            for output in cell["outputs"]
        ]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        kept = run_cells(Path(name))
        Path(name).write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
