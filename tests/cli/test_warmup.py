"""thetajoin warmup: every join it makes can be made, and it says where the kernels are."""

from __future__ import annotations

import pytest

from thetajoin import warm
from thetajoin.kernels import compiler, jit, store


def test_it_says_where_they_are(run, monkeypatch, tmp_path):
    monkeypatch.setattr(jit, "COMPILES", True)
    monkeypatch.setattr(store, "find_writable", lambda: tmp_path)
    monkeypatch.setattr(warm, "warm", lambda done: 3.2)
    assert run("warmup") == (0, f"compiled kernels are in {tmp_path} (3 s)\n", "")


def test_without_a_folder_nothing_is_made(run, monkeypatch):
    monkeypatch.setattr(store, "find_writable", lambda: None)
    code, out, err = run("warmup")
    assert (code, err) == (0, "")
    assert "nothing is kept here" in out


@pytest.mark.skipif(not jit.COMPILES, reason="nothing is compiled")
def test_every_join_can_be_made_and_is_compiled_for_this_processor(monkeypatch):
    monkeypatch.setattr(warm, "SIZES", (70,))
    steps = []
    warm.warm(lambda done, of: steps.append((done, of, compiler.use_ready)))
    assert steps[-1][0] == steps[-1][1] == len(steps) > 50
    assert not any(ready for _, _, ready in steps)
    assert compiler.use_ready
