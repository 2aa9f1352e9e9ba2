"""Where conditions of WHERE go, by the kinds of the joins above their tables."""

from __future__ import annotations

import pytest

from thetajoin.query.frames import Place, place


@pytest.mark.parametrize(
    ("about", "hows", "want"),
    [
        ("a", ["inner"], ("on", 1)),
        ("b", ["inner"], ("on", 1)),
        ("ab", ["inner"], ("on", 1)),
        ("", ["inner"], ("on", 1)),
        ("a", ["left"], ("joined", 0)),
        ("b", ["left"], ("joined", 1)),
        ("ab", ["left"], ("joined", 1)),
        ("", ["left"], ("joined", 1)),
        ("a", ["right"], ("joined", 1)),
        ("b", ["right"], ("table", 1)),
        ("ab", ["right"], ("joined", 1)),
        ("a", ["full"], ("joined", 1)),
        ("b", ["full"], ("joined", 1)),
        ("a", ["semi"], ("joined", 0)),
        ("a", ["anti"], ("joined", 0)),
        ("ab", ["inner", "inner"], ("on", 1)),
        ("ab", ["inner", "left"], ("on", 1)),
        ("ab", ["inner", "anti"], ("on", 1)),
        ("ab", ["inner", "right"], ("joined", 2)),
        ("ab", ["inner", "full"], ("joined", 2)),
        ("c", ["inner", "right"], ("table", 2)),
        ("ac", ["left", "inner"], ("on", 2)),
        ("b", ["left", "inner"], ("joined", 1)),
        ("b", ["right", "left", "inner"], ("table", 1)),
        ("a", ["full", "semi", "left"], ("joined", 1)),
        ("a", ["left", "right", "left"], ("joined", 2)),
    ],
)
def test_places(about, hows, want):
    assert place(set(about), "abcd"[: len(hows) + 1], ["inner", *hows]) == Place(*want)


@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti"])
def test_a_window_is_given_all_rows(how):
    for about in ("a", "b", "ab"):
        assert place(set(about), "ab", ["inner", how], windowed=True) == Place("joined", 1)
        assert place(set(about), "ab", ["inner", "inner"], windowed=True) == Place("on", 1)
