"""Heavy packages stand aside until they are used, and are then the packages themselves, whole and
loaded once."""

from __future__ import annotations

import subprocess
import sys

import pytest

WATCHED = """
import sys
from eckart.loading import Delayed, delay
delay()
def loaded(name):
    return not isinstance(sys.modules.get(name), (Delayed, type(None)))
"""


def _run(code):
    done = subprocess.run(
        [sys.executable, "-c", WATCHED + code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_scikit_learn_does_not_load_them():
    _run("""
import sklearn.base
assert not loaded("scipy.stats") and not loaded("pandas") and not loaded("numpy.f2py")
from importlib.util import find_spec
assert find_spec("scipy.stats") is not None
""")


def test_an_attribute_loads_the_package_itself():
    _run("""
sys.meta_path.pop(0)
delay(("xml.dom",))
import xml.dom
import xml.dom as early
assert not loaded("xml.dom")
assert xml.dom.Node.TEXT_NODE == 3
assert loaded("xml.dom") and xml.dom is sys.modules["xml.dom"] and early.Node is xml.dom.Node
try:
    early.nothing_of_this_name
except AttributeError as error:
    assert "xml.dom" in str(error)
else:
    raise SystemExit("an attribute that does not exist was found")
""")


def test_a_part_is_the_part_of_the_package():
    pytest.importorskip("pandas", reason="pandas is not installed")
    _run("""
import pandas as early
from pandas.api.types import is_numeric_dtype
import pandas.core.frame
assert pandas.core.frame.DataFrame is early.DataFrame is sys.modules["pandas"].DataFrame
assert pandas.core.frame.__spec__.name == "pandas.core.frame" and pandas.core.frame.__spec__.origin.endswith("frame.py")
assert is_numeric_dtype is sys.modules["pandas"].api.types.is_numeric_dtype
""")


def test_many_threads_load_it_once():
    _run("""
import threading
sys.meta_path.pop(0)
delay(("sqlite3",))
import sqlite3
found, begin = [], threading.Barrier(8)
def ask():
    begin.wait()
    found.append(sqlite3.Connection)
threads = [threading.Thread(target=ask) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
assert len(found) == 8 and len({id(f) for f in found}) == 1
""")


def test_what_is_not_installed_stays_missing_and_what_is_loaded_stays_loaded():
    _run("""
import eckart.loading as d
sys.meta_path.pop(0)
import json
d.delay(("json", "no_such_package_at_all"))
import json as again
assert again is json and not isinstance(json, Delayed)
try:
    import no_such_package_at_all
except ImportError:
    pass
else:
    raise SystemExit("a package that is not installed was found")
""")


def test_a_library_that_imports_eckart_is_left_alone():
    code = (
        "import sys, eckart, eckart.cli.main; assert not any(type(f).__name__ == 'Finder' for f "
        "in sys.meta_path)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
