"""Makes pages of the notebooks and of files at the top of the repository, and mends their links."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "https://github.com/thetajoin/thetajoin/blob/main/"
PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the repository's top folder, and a page for each notebook."""
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        for name, content in notebook_page(notebook).items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    for source, page in PAGES.items():
        text = re.sub(r"\]\(docs/", "](", (ROOT / source).read_text())
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links out of docs/ go to such a page, or to the file in the public repository."""

    def target(link: re.Match[str]) -> str:
        name, anchor = link[1], link[2] or ""
        return f"]({PAGES[name]}{anchor})" if name in PAGES else f"]({SOURCE}{name}{anchor})"

    return re.sub(r"\]\(\.\./((?!\.\./)[A-Za-z][\w./-]*\.\w+)(#[\w-]+)?\)", target, markdown)


def notebook_page(path: Path) -> dict[str, str | bytes]:
    """A notebook as a page, `name.md`, and its pictures: code, what it printed, what it drew."""
    parts, made = [], {}
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{path.stem}-{len(made)}.png"
                made[picture] = base64.b64decode(data["image/png"])
                parts.append(f"![Plot]({picture}){{ .chart }}")
            else:
                text = "".join(output.get("text", data.get("text/plain", [])))
                parts.append(f"``` {{ .text .output .no-copy }}\n{text.rstrip()}\n```")
    link = f"[Open this notebook]({SOURCE}docs/notebooks/{path.name})"
    return {f"{path.stem}.md": "\n\n".join([*parts, f"---\n\n{link}"]), **made}
