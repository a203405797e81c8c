"""How long a job would take, and how much memory: the command itself with --plan, in a child that
ends with the question."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from eckart.cli.shell import lasting
from eckart.serve.problems import Problem
from eckart.studio.forms import shell_line
from eckart.studio.jobs import child_environment, child_of

PLAN_SECONDS = 120
"""Longest measurement of a plan."""


def plan(words: list[str], root: Path, gone: threading.Event) -> dict[str, Any]:
    """The plan of a command; what the command refuses is a problem in its words."""
    last = measured(words, root, gone)
    if last is None:
        raise Problem(
            503,
            f"the plan took longer than {PLAN_SECONDS} s to measure; the job itself "
            "will take far longer",
        )
    answer = last.get("answer") or {}
    if last.get("code") != 0:
        raise Problem(422, last.get("error") or "the command ended without a plan")
    found = answer.get("plan") or {}
    all_rows = found.get("measured_rows") == found.get("rows")
    part = "all" if all_rows else f"{found.get('measured_rows', 0):,} of {found.get('rows', 0):,}"
    text = f"about {lasting(found.get('seconds', 0.0))} for the fit, measured on {part} rows"
    aside = ("plan", "eckart", "command", "exit", "notes", "data")
    return found | {
        "memory": last.get("peak"),
        "words": text,
        "choices": {n: v for n, v in answer.items() if n not in aside},
        "notes": answer.get("notes", []),
        "shell": shell_line(words),
    }


def measured(words: list[str], root: Path, gone: threading.Event) -> dict[str, Any] | None:
    """The last event of a child that measures a plan; it is ended when nobody waits for it any
    more, or after ``PLAN_SECONDS`` (None)."""
    command = child_of([*words, "--plan"])
    with subprocess.Popen(
        command,
        cwd=root,
        env=child_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as child:
        found: dict[str, Any] = {}

        def read() -> None:
            for line in child.stdout or ():
                event = json.loads(line)
                if event.get("event") == "end":
                    found.update(event)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        end = time.monotonic() + PLAN_SECONDS
        while reader.is_alive() and not gone.is_set() and time.monotonic() < end:
            reader.join(0.1)
        late = reader.is_alive()
        child.kill()
        reader.join()
    return None if late and not gone.is_set() else found
