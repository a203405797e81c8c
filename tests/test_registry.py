"""One list of estimators, from which the shell, the studio, files and public names are made."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import eckart
from eckart.cli import compare, complete, embed, explain, reduce
from eckart.fit import Estimator
from eckart.registry import MODELS, SAVED, class_named, methods
from eckart.studio.forms import form


def test_every_public_estimator_is_registered_with_its_verb():
    public = {
        name
        for name in eckart.__all__
        if inspect.isclass(kind := getattr(eckart, name)) and issubclass(kind, Estimator)
    }
    assert public == set(SAVED)
    for model in MODELS:
        assert class_named(model.name) is getattr(eckart, model.name)


def test_types_name_what_is_public():
    tree = ast.parse(Path(eckart.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.asname for node in block.body for alias in node.names}
    public = {name for name in eckart.__all__ if name != "__version__"}
    assert typed - {"metrics", "optim", "plots"} == public


@pytest.mark.parametrize("verb", [reduce, complete, explain, embed], ids=lambda m: m.__name__)
def test_shell_and_studio_offer_the_registered_methods(verb):
    name = verb.__name__.rpartition(".")[2]
    offered = set(verb.METHODS) - {"biases"}
    assert offered == set(methods(name))
    choices = next(o["choices"] for o in form(name)["options"] if o["name"] == "method")
    assert set(choices) - {"auto", "biases"} == offered


def test_methods_for_lists_are_those_that_are_compared():
    assert set(compare.METHODS) == set(methods("complete", lists=True))
    assert set(methods("complete", values=False)) < set(compare.METHODS)
