"""CPU and memory limits of a container."""

import os

import pytest

from tfsac.utils import machine


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("150000 100000", 2), ("100000 100000", 1), ("50000 100000", 1), ("max 100000", None), ("", None)],
)
def test_cpu_quota_limits_usable_cores(tmp_path, monkeypatch, quota, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    assert machine.usable_cores() == 8
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    assert machine.usable_cores() == (cores or 8)


def test_memory_limit_bounds_usable_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    ram = machine.usable_memory()
    assert ram > 2**28
    for limit, usable in (("max", ram), (str(2**28), 2**28), (str(2**60), ram)):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        assert machine.usable_memory() == usable
