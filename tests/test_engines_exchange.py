"""Every estimator runs on any engine: here on ``numpy``, in a process that cannot import
``engines.cpu`` at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "engines"))
from exchange import CASES


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exchange")
    script = Path(__file__).parent / "engines" / "exchange.py"
    done = subprocess.run(
        [sys.executable, script, folder], capture_output=True, check=True, text=True
    )
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("case", CASES)
def test_fits_certifies_transforms_saves_and_loads_without_the_cpu_engine(case, outcomes):
    assert outcomes[case] == "done"
