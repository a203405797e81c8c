"""Every primitive is written in the oracle, in every engine of the registry, and judged by a
contract case."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from registry import ENGINES, JUDGE, SLOW

from eckart.engines.protocol import Engine

PRIMITIVES = sorted(
    name
    for base in Engine.__mro__
    for name, value in vars(base).items()
    if callable(value) and not name.startswith("_")
)
CASES = "\n".join(
    path.read_text()
    for path in Path(__file__).parent.glob("test_*.py")
    if path.name != "test_meta.py"
)


@pytest.mark.parametrize("name", PRIMITIVES)
def test_every_primitive_has_an_obvious_form_and_a_contract_case(name):
    assert callable(getattr(JUDGE, name, None)), f"the oracle has no {name}"
    for engine in (ENGINES | SLOW).values():
        assert callable(getattr(engine, name, None)), f"{engine.name} has no {name}"
    assert re.search(rf"\.{name}\(|[\"']{name}[\"']", CASES), f"no contract case calls {name}"


def test_no_family_hides_a_method_of_another():
    for engine in (JUDGE, *ENGINES.values()):
        seen: dict[str, str] = {}
        for base in type(engine).__bases__:
            for name in (
                n for n, v in vars(base).items() if callable(v) or isinstance(v, staticmethod)
            ):
                assert name.startswith("__") or name not in seen, (
                    f"{name} is in {seen.get(name)} and in {base.__name__}"
                )
                seen[name] = base.__name__


@pytest.mark.parametrize("engine", [e for n, e in ENGINES.items() if "threads" not in n])
def test_no_helper_of_the_array_primitives_is_hidden(engine):
    """Their bodies call each other's helpers: another family has none of the same name, and an
    engine overrides one where it overrides the family."""
    kind = type(getattr(engine, "engine", engine))
    bodies = [b for b in kind.__mro__ if b.__module__.startswith("eckart.engines.arrays")]
    assert bodies
    for name, own in ((n, v) for body in bodies for n, v in vars(body).items() if callable(v)):
        if name.startswith("_") and not name.endswith("__"):
            maker = next(base for base in kind.__mro__ if name in vars(base))
            assert any(issubclass(maker, body) for body in bodies if vars(body).get(name) is own), (
                name
            )


def test_the_oracle_borrows_nothing_from_the_engines_it_judges():
    for path in (Path(__file__).parents[1] / "oracle").glob("*.py"):
        for module in re.findall(r"eckart\.engines\.(\w+)", path.read_text()):
            assert module in ("protocol", "host"), path
