"""What a newcomer meets first keeps its word: README, documentation pages, metadata."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib import import_module
from pathlib import Path

import eckart

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def test_the_readme_is_short_and_its_links_lead_somewhere():
    readme = ROOT / "README.md"
    assert len(readme.read_bytes()) <= 9000
    for link in re.findall(r"\]\(([^)#]+)\)", readme.read_text(encoding="utf-8")):
        assert (ROOT / link).exists(), f"README.md links to {link}, which is not there"


def test_every_page_is_in_the_index():
    index = (DOCS / "index.rst").read_text(encoding="utf-8")
    for page in DOCS.glob("*.rst"):
        assert page.stem == "index" or re.search(rf"^   {page.stem}$", index, re.M), (
            f"{page.name} is in no table of contents"
        )


def test_every_public_name_is_in_the_api_and_every_name_there_exists():
    text = (DOCS / "api.rst").read_text(encoding="utf-8")
    module, found = "eckart", set()
    for line in text.splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif re.fullmatch(r"   [\w.]+", line):
            where, _, name = f"{module}.{line.strip()}".rpartition(".")
            assert hasattr(import_module(where), name), f"api.rst lists {where}.{name}"
            found.add(name)
    from eckart import optim, plots

    missing = {*eckart.__all__, *plots.__all__, *optim.__all__} - found - {"__version__"}
    assert not missing, f"api.rst lacks {sorted(missing)}"


def named_checks() -> set[str]:
    """First arguments of every Check(...) in the source."""
    names = set()
    for path in (ROOT / "src" / "eckart").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "Check"
            )
            if called and node.args and isinstance(node.args[0], ast.Constant):
                names.add(node.args[0].value)
    return names - {"gap"}  # of a doctest


def test_the_page_on_failing_certificates_names_every_check():
    page = (DOCS / "failing.rst").read_text(encoding="utf-8")
    names = named_checks()
    assert len(names) > 30
    missing = {name for name in names if f"``{name}``" not in page}
    assert not missing, f"failing.rst says nothing about {sorted(missing)}"


def test_dependency_groups_say_what_the_extras_say():
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups, extras = told["dependency-groups"], told["project"]["optional-dependencies"]
    flat = {
        name: [one for one in wanted if isinstance(one, str)] for name, wanted in groups.items()
    }
    assert sorted(flat["test"] + flat["lint"]) == sorted(extras["dev"])
    assert sorted(flat["docs"]) == sorted(extras["docs"])


def test_the_version_is_written_once():
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" in told["project"]["dynamic"]
    assert f'__version__ = "{eckart.__version__}"' in (
        ROOT / "src" / "eckart" / "__init__.py"
    ).read_text(encoding="utf-8")
    assert "\nversion:" not in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
