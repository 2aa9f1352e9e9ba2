"""The benchmarks that the command line knows."""

from __future__ import annotations

import importlib

import pytest

from thetajoin.cli.benchmarks import NAMES, run_benchmark
from thetajoin.errors import OptionError


@pytest.mark.parametrize("module", NAMES.values())
def test_every_name_has_a_runner(module: str) -> None:
    assert callable(importlib.import_module(module).run)


def test_an_unknown_name_says_which_is_near() -> None:
    with pytest.raises(OptionError, match="did you mean 'faults'"):
        run_benchmark("fault", as_json=True, scale=1.0)
