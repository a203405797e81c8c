"""Text that every installation has: the documentation of NumPy, SciPy and scikit-learn, which
eckart needs anyway.

Source files are parsed, never imported: nothing runs, no warning appears, and compiled modules are
not needed.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from eckart.errors import FileError, invalid

PACKAGES = ("numpy", "scipy", "sklearn")
SKIPPED = {
    "tests",
    "test",
    "testing",
    "externals",
    "_external",
    "_lib",
    "_vendored",
    "conftest",
    "setup",
    "benchmarks",
    "f2py",
    "distutils",
}
"""Folders and files whose documentation is not for users."""
HEAD = r"[ \t]*\n[ \t]*-{3,}[ \t]*\n"
SECTION = re.compile(
    rf"^[ \t]*(References|Examples|See Also){HEAD}.*?(?=^[ \t]*\S[^\n]*{HEAD}|\Z)", re.M | re.S
)
DOCTEST = re.compile(r"^[ \t]*(>>>|\.\.\. ).*$", re.M)
MARKUP = re.compile(r":[a-z:]+:`~?([^`<]*)[^`]*`|^\s*\.\. [a-z]+::.*$|``|\*\*|[{}\\$]", re.M)


def docstrings(
    packages: tuple[str, ...] = PACKAGES, *, min_length: int = 300, prose: bool = True
) -> list[tuple[str, str]]:
    """Documentation of the public functions and classes of installed packages, as (name, text)
    pairs in the order of their names.

    ``min_length`` leaves out texts of fewer characters. ``prose`` takes out examples, references,
    lists of related functions and markup, so that sentences and descriptions of parameters are
    left.

    >>> found = dict(docstrings(("numpy",)))
    >>> "numpy.linalg.svd" in found, len(found) > 400
    (True, True)
    """
    if isinstance(packages, str) or not packages:
        raise invalid("packages", packages, "a tuple of package names")
    found: dict[str, str] = {}
    for package in packages:
        for file, parts in _files(package):
            for name, text in _documented(file):
                text = _prose(text) if prose else inspect.cleandoc(text)
                if len(text) >= min_length:
                    found.setdefault(".".join([*parts, name]), text)
    seen: set[str] = set()
    return [
        (name, found[name])
        for name in sorted(found)
        if not (found[name] in seen or seen.add(found[name]))  # type: ignore[func-returns-value]
    ]


def _files(package: str) -> Iterator[tuple[Path, list[str]]]:
    """Source files of a package with the public part of their module's name."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise FileError(f"package must be one that is installed, got {package!r}")
    for top in spec.submodule_search_locations:
        for folder, below, files in os.walk(top):
            below[:] = sorted(name for name in below if name not in SKIPPED)
            inside = Path(folder).relative_to(top).parts
            for name in sorted(files):
                stem = name.removesuffix(".py")
                if name.endswith(".py") and stem not in SKIPPED and not stem.startswith("test_"):
                    yield (
                        Path(folder, name),
                        [package, *(p for p in (*inside, stem) if not p.startswith("_"))],
                    )


def _documented(file: Path) -> Iterator[tuple[str, str]]:
    """Names and docstrings of public functions and classes; and of compiled ones, which are
    documented by calls of ``add_newdoc``."""
    try:
        source = file.read_bytes()
        if b'"""' not in source and b"'''" not in source:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        return
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            text = ast.get_docstring(node, clean=False)
            if text:
                yield node.name, text
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield from _added(node.value)


def _added(call: ast.Call) -> Iterator[tuple[str, str]]:
    if getattr(call.func, "id", "") not in ("add_newdoc", "add_newdoc_for_scalar_type"):
        return
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if len(texts) >= 2 and re.fullmatch(r"[A-Za-z]\w*", texts[-2]):
        yield texts[-2], texts[-1]


def _prose(text: str) -> str:
    text = SECTION.sub("", inspect.cleandoc(text) + "\n")
    text = MARKUP.sub(lambda m: m[1] or " ", DOCTEST.sub("", text))
    return re.sub(
        r"\n\s*\n\s*\n+", "\n\n", re.sub(r"^\s*[-=~]{3,}\s*$", "", text, flags=re.M)
    ).strip()
