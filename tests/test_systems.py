"""What differs between operating systems, with the systems pretended: free memory, and whether a
process runs."""

from __future__ import annotations

import os
import subprocess
import sys
import types

import pytest

from eckart.engines.choose import available_memory, free_in_group
from eckart.io.models import whole_files

VM_STAT = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               10000.
Pages active:                            400000.
Pages inactive:                           20000.
Pages speculative:                         3000.
Pages purgeable:                            500.
"Translation faults":                 123456789.
"""


def test_free_memory_is_known_here():
    assert 2**20 < available_memory() < 2**50


def test_free_memory_of_macos_is_what_the_system_would_give(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: types.SimpleNamespace(stdout=VM_STAT))
    assert available_memory() == 33_500 * 16384


def test_the_limit_of_a_container_counts(tmp_path):
    """Version 2 of control groups: the least of the group and those above it; pages of files that
    can be given away are free."""
    process, groups = tmp_path / "cgroup", tmp_path / "fs"
    process.write_text("0::/jobs/one\n")
    for name, most, used, idle in (("jobs", "3000", 2500, 200), ("jobs/one", "max", 900, 100)):
        (groups / name).mkdir(parents=True)
        (groups / name / "memory.max").write_text(most + "\n")
        (groups / name / "memory.current").write_text(f"{used}\n")
        (groups / name / "memory.stat").write_text(
            f"anon 7\ninactive_file {idle - 60}\nactive_file 60\n"
        )
    assert free_in_group(process, groups) == 700
    (groups / "jobs/one/memory.max").write_text("1000")
    assert free_in_group(process, groups) == 200
    assert free_in_group(tmp_path / "nothing", groups) == float("inf")


def test_the_limit_of_a_container_counts_in_version_1(tmp_path):
    process, group = tmp_path / "cgroup", tmp_path / "fs" / "memory"
    process.write_text("5:cpu,cpuacct:/a\n4:memory:/docker/0123\n")
    group.mkdir(parents=True)  # inside of a container the own group is the top
    for name, number in (("limit_in_bytes", 2000), ("usage_in_bytes", 1500)):
        (group / f"memory.{name}").write_text(f"{number}\n")
    (group / "memory.stat").write_text("cache 9\ntotal_inactive_file 200\ntotal_active_file 100\n")
    assert free_in_group(process, tmp_path / "fs") == 800


@pytest.mark.parametrize("platform", ["darwin", "win32", "plan9"])
def test_a_system_that_does_not_say_has_no_limit(monkeypatch, platform):
    """Here neither vm_stat nor kernel32 is there."""
    monkeypatch.setattr(sys, "platform", platform)
    assert available_memory() == float("inf")


def test_a_process_of_windows_is_looked_up_and_never_sent_a_signal(monkeypatch):
    asked = []
    monkeypatch.setattr(
        whole_files, "_runs_on_windows", lambda process: asked.append(process) or True
    )
    monkeypatch.setattr(whole_files.os, "name", "nt")
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("os.kill ends a process on Windows"))
    assert whole_files._runs(17)
    assert asked == [17]
