"""What differs between operating systems, with the systems pretended: free memory, and whether a process runs."""

from __future__ import annotations

import os
import subprocess
import sys
import types

import pytest

from eckart.engines.choose import available_memory
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


@pytest.mark.parametrize("platform", ["darwin", "win32", "plan9"])
def test_a_system_that_does_not_say_has_no_limit(monkeypatch, platform):
    """Here neither vm_stat nor kernel32 is there."""
    monkeypatch.setattr(sys, "platform", platform)
    assert available_memory() == float("inf")


def test_a_process_of_windows_is_looked_up_and_never_sent_a_signal(monkeypatch):
    asked = []
    monkeypatch.setattr(whole_files, "_runs_on_windows", lambda process: asked.append(process) or True)
    monkeypatch.setattr(whole_files.os, "name", "nt")
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("os.kill ends a process on Windows"))
    assert whole_files._runs(17)
    assert asked == [17]
