"""What the machine gives, on this platform and on those that lack what Linux has."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from thetajoin.engine import machine
from thetajoin.engine.spec import Options


@pytest.fixture(autouse=True)
def unlimited(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(machine, "OLD_QUOTA", (tmp_path / "quota", tmp_path / "period"))
    return tmp_path


def test_cores_without_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert machine.available_cores() == 6
    assert Options().workers == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert machine.available_cores() == 1


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "1000 100000\n"}, 1),
        ({"cpu.max": "9000000 100000\n"}, 8),
        ({"cpu.max": "?"}, 8),
        ({"quota": "300000\n", "period": "100000\n"}, 3),
        ({"quota": "-1\n", "period": "100000\n"}, 8),
        ({"quota": "100000\n", "period": "0\n"}, 8),
    ],
)
def test_cores_of_a_container(monkeypatch, unlimited, files, cores):
    for name, text in files.items():
        (unlimited / name).write_text(text)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert machine.available_cores() == cores


def test_memory(monkeypatch):
    assert machine.memory_bytes() > 0
    monkeypatch.delattr(os, "sysconf")
    assert machine.memory_bytes() is None


def test_asking_for_a_process_never_ends_one(monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert machine.may_be_alive(child.pid)
    child.communicate(b"\n")
    assert not machine.may_be_alive(child.pid)
    monkeypatch.setattr(os, "name", "nt")
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("os.kill ends a process on Windows"))
    assert machine.may_be_alive(child.pid)
