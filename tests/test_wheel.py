"""The wheel holds what the checkout has: every module, the marker of types, files that are not
Python; and nothing else."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import eckart

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "eckart"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from this checkout without a network."""
    for name in ("build", "hatchling"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed, and without it no wheel can be built offline")
    if not (ROOT / "pyproject.toml").is_file():
        pytest.skip("there is no checkout to build from")
    out = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(out),
        str(ROOT),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = out.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        yield archive


def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel):
    held = {name for name in wheel.namelist() if not name.split("/")[0].endswith(".dist-info")}
    here = {
        f"eckart/{path.relative_to(SOURCE).as_posix()}"
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == here
    assert "eckart/py.typed" in held


def test_metadata_tells_version_licence_readme_and_requirements(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    told = Parser().parsestr(wheel.read(name).decode())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert told["Version"] == eckart.__version__
    assert "version" not in project, "the version is written once, in eckart/__init__.py"
    assert told["License-Expression"] == "BSD-3-Clause"
    assert sorted(told.get_all("License-File")) == ["LICENSE", "THIRD_PARTY_NOTICES.md"]
    assert told.get_payload().startswith("# eckart")
    needed = {
        line.split(";")[0].strip()
        for line in told.get_all("Requires-Dist")
        if "extra ==" not in line
    }
    assert len(needed) == len(project["dependencies"])


def test_the_command_is_installed(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    assert "eckart = eckart.cli.main:run" in wheel.read(name).decode()
