"""The docstring of every public name says what its parameters are and what it returns."""

import inspect
import re

import pytest

import eckart


def section(doc, name):
    """The entries of a section of a docstring: names, and whether each has words below it."""
    _, found, text = doc.partition(f"{name}\n{'-' * len(name)}\n")
    text = re.split(r"^[^\n]+\n-{3,}$", text, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in text.splitlines() if line.strip()]
    entries = {}
    for line, after in zip(lines, [*lines[1:], ""]):
        if not line.startswith(" "):
            entries |= {
                one.strip().lstrip("*"): after.startswith(" ")
                for one in line.partition(" :")[0].split(",")
            }
    return entries if found else {}


def public():
    for name in eckart.__all__:
        thing = getattr(eckart, name)
        if not callable(thing) or (inspect.isclass(thing) and issubclass(thing, Exception)):
            continue
        yield name, thing, not inspect.isclass(thing)
        if inspect.isclass(thing):
            for verb, function in inspect.getmembers(thing, inspect.isroutine):  # of classes, too
                if not verb.startswith("_") and str(function.__module__).startswith("eckart."):
                    yield f"{name}.{verb}", function, True


@pytest.mark.parametrize(
    ("name", "thing", "answers"), [pytest.param(*one, id=one[0]) for one in public()]
)
def test_parameters_and_answers_are_described(name, thing, answers):
    signature, doc = inspect.signature(thing), inspect.getdoc(thing) or ""
    told = section(doc, "Parameters")
    for parameter in signature.parameters:
        if parameter not in ("self", "cls") and not parameter.startswith("_"):
            assert told.get(parameter), f"{name} does not say what {parameter} is"
    returned = str(signature.return_annotation).strip("'")
    if (
        answers
        and returned != "None"
        and not returned.startswith(("Iterator", "collections.abc.Iterator"))
    ):
        assert section(doc, "Returns"), f"{name} does not say what it returns"


@pytest.mark.parametrize("name", eckart.__all__)
def test_types_of_parameters_stand_alone_on_their_lines(name):
    """A formatter that joins them with the sentence below gives ``tol : float Stop when ...``."""
    for line in (inspect.getdoc(getattr(eckart, name)) or "").splitlines():
        joined = re.match(
            r'\w[\w, ]* : (None|int|float|bool|path|str|")[^.:;]* (?!None|True|False)[A-Z][a-z]+ ',
            line,
        )
        assert not joined, line
