"""Links between pages lead somewhere, and the reference names everything that is public."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import thetajoin
from docs.snippets import PAGES, ROOT

# Made when the site is built, from files and docstrings.
GENERATED = re.compile(r"(contributing|changelog|notebooks/\w+)\.md$|reference\.md#thetajoin\.")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site and code hosts make them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    words = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", word.lower()).strip().replace(" ", "-") for word in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http", "mailto:", "#thetajoin.")) or GENERATED.search(link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_reference_names_everything_public() -> None:
    page = (ROOT / "docs" / "reference.md").read_text()
    shown = set(re.findall(r"^::: thetajoin\.(\w+)$", page, re.MULTILINE))
    assert shown | {"l", "r"} == set(thetajoin.__all__)
