"""What an installation says of itself: `eckart doctor` and `eckart.show_versions()`."""

import importlib.metadata as metadata
import json
import subprocess
import sys

import eckart
from eckart.versions import installation


def test_the_shell_says_versions_threads_memory_and_kernels():
    run = subprocess.run(
        [sys.executable, "-m", "eckart", "doctor", "--json"], capture_output=True, text=True
    )
    found = json.loads(run.stdout)
    assert run.returncode == 0, run.stderr
    assert found["versions"]["eckart"] == eckart.__version__
    assert found["versions"]["numpy"]
    assert found["blas"]
    assert found["threads"] >= 1
    assert found["free_memory"] > 0
    assert found["kernels"]["folder"]


def test_a_missing_extra_is_said_with_the_line_that_installs_it(monkeypatch, capsys):
    whole = metadata.version

    def without(package):
        if package == "openpyxl":
            raise metadata.PackageNotFoundError(package)
        return whole(package)

    monkeypatch.setattr(metadata, "version", without)
    monkeypatch.setattr("eckart.versions.find_spec", lambda name: None)
    assert installation()["missing"]["xlsx"] == "pip install 'eckart[xlsx]'"
    eckart.show_versions()
    said = capsys.readouterr().out
    assert "extra xlsx: pip install 'eckart[xlsx]'" in said
    assert "not installed" in said
    assert "dev" not in installation()["missing"]


def test_update_rules_and_the_flow_of_a_saddle_are_public():
    assert eckart.optim.rule_named("adam").default_lr == 0.02
    assert eckart.plots.flow(1.0, 0.25, [0.0, 50.0]).tolist() == [0.25, 1.0]
