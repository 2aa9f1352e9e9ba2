"""README's examples as a clean install runs them: without pandas, Polars and Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from docs.snippets import ROOT, blocks_of

RUN = """
import sys
from pathlib import Path

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pandas", "polars", "pyspark", "duckdb", "matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
sys.path[:0] = sys.argv[2:]
from docs.snippets import run_page

print(*run_page(Path(sys.argv[1]), Path.cwd(), without="spark"), sep="\\n", end="")
"""


def test_the_examples_give_what_they_show(tmp_path: Path) -> None:
    blocks = blocks_of((ROOT / "README.md").read_text())
    assert any(block.kind == "python" and "spark" not in block.text for block in blocks)
    done = subprocess.run(
        [sys.executable, "-c", RUN, ROOT / "README.md", ROOT / "tests", ROOT / "src", ROOT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("", "")
