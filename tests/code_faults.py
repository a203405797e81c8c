"""Small faults of code as changed syntax trees: a sign turned, a term dropped, a limit a hundred
times looser, a check or a refusal removed, a comparison turned, a seed ignored; and faults picked
by hand."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "eckart"
OPPOSITE = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
TINY = 1e-100
"""Numbers that only keep a quotient from being 0 / 0 are as good a hundred times larger."""
TURNED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}

PICKED: list[tuple[str, str, str]] = [
    (
        "certify/stationary.py",
        "square += sums.slope + sums.bias_slope",
        "square += sums.bias_slope",
    ),
    ("certify/topics.py", "falls(trace, moves), 0, fell", "falls(trace, moves), 100, fell"),
    ("certify/recovery.py", "bound + slack, 1 - 1e-9", "bound + slack, 100.0"),
    ("certify/recovery.py", '"injectivity", -low, -1e-12', '"injectivity", -low, 1.0'),
    ("certify/pairs.py", "(n - OFTEN) / OTHERS", "1.0"),
    ("certify/nuclear.py", "            1e-6,", "            1e-4,"),
    ("certify/nuclear.py", "bound / tau, 1.0,", "bound / tau, 100.0,"),
    ("certify/nuclear.py", "1.5 * tol", "150 * tol"),
    (
        "certify/spectral.py",
        "max(50 * eps * np.sqrt(k), 1e-12)",
        "max(50 * eps * np.sqrt(k), 1e-10)",
    ),
    ("certify/spectral.py", "            allowed,", "            100 * allowed,"),
    ("certify/network.py", "if stopped == StopReason.DIVERGED.value:", "if False:"),
    (
        "complete/factors/alternate.py",
        "stop.gradient is None or stop.gradient(state.point) <= GRADIENT_LIMIT",
        "True",
    ),
    ("complete/nuclear/exact.py", "PACES[used : max(1, attempts)]", "PACES[used:]"),
    (
        "explain/parts/loop.py",
        "np.hypot(rows.residual, columns.residual) <= tol",
        "np.hypot(rows.residual, columns.residual) <= 100 * tol",
    ),
    ("explain/topics/lda_gibbs.py", "average=sweep >= burn_in", "average=True"),
    (
        "explain/em.py",
        "abs(after.bound / after.weight - trace.values[-1]) < tol",
        "(after.bound / after.weight - trace.values[-1]) < tol",
    ),
    ("explain/em.py", "still = small and len(trace) > least", "still = small"),
    ("explain/parts/consensus.py", "hidden[:, (seen & ~hidden).sum(axis=0) == 0] = False", "pass"),
    ("nn/losses.py", "- 1 - log_var", "- 1"),
    ("embed/skipgram_train.py", "seed=(seed + epoch) % 2**63", "seed=seed % 2**63"),
    ("reduce/rotate.py", "loadings / np.where(length > 0, length, 1.0)", "loadings"),
    ("report/held_out.py", "ours < min(others)", "ours <= min(others)"),
    ("io/models/checkpoint.py", '"layout": LAYOUT, ', ""),
    ("cli/shell.py", "os.path.realpath(path) in sources", "False"),
]
"""Faults that a reader picked by hand and that once lived: (module, text, what stands there
instead)."""


def faults(tree: ast.Module) -> list[tuple[str, ast.AST, str, ast.AST]]:
    """(what, parent, field or index, new node) of every fault that can be put into a module, in the
    order of its lines."""
    found = []
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            children = value if isinstance(value, list) else [value]
            for at, child in enumerate(children):
                where = (name, at) if isinstance(value, list) else (name, None)
                found += [(what, parent, where, new) for what, new in _faults_of(child, parent)]
    return sorted(found, key=lambda f: (getattr(f[3], "lineno", 0), f[0]))


def _faults_of(node: object, parent: ast.AST) -> list[tuple[str, ast.AST]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OPPOSITE:
        other = ast.Compare(node.left, [OPPOSITE[type(node.ops[0])]()], node.comparators)
        return [("comparison turned", ast.copy_location(other, node))]
    if (
        isinstance(node, ast.BinOp)
        and type(node.op) in TURNED
        and not isinstance(node.left, (ast.Constant, ast.List))
    ):
        other = ast.BinOp(node.left, TURNED[type(node.op)](), node.right)
        out = [("sign turned", ast.copy_location(other, node))]
        if isinstance(node.op, (ast.Add, ast.Sub)):
            out.append(("term dropped", ast.copy_location(node.left, node)))
        return out
    if (
        isinstance(node, ast.Constant)
        and type(node.value) is float
        and abs(node.value) > TINY
        and isinstance(parent, (ast.Assign, ast.Tuple, ast.Call))
    ):
        return [("limit times 100", ast.copy_location(ast.Constant(node.value * 100), node))]
    if isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise) and not node.orelse:
        return [("refusal removed", ast.copy_location(ast.Pass(), node))]
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).endswith("checks.append")
    ):
        return [("check removed", ast.copy_location(ast.Pass(), node))]
    if (
        isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("default_rng")
        and not all(isinstance(a, ast.Constant) for a in node.args)
    ):
        zero = ast.Call(node.func, [ast.Constant(12345)], [])
        return [("seed ignored", ast.copy_location(zero, node))]
    return []


def mutated(path: Path, number: int) -> tuple[ast.Module, str]:
    """The module with its fault of this number (below zero: of PICKED, from its end), and the fault
    in words."""
    text = path.read_text()
    if number < 0:
        _, old, new = PICKED[number]
        assert text.count(old) == 1, (path, old)
        line = text[: text.index(old)].count("\n") + 1
        return ast.parse(
            text.replace(old, new)
        ), f"{path.relative_to(SOURCE)}:{line} picked: {old} -> {new}"
    tree = ast.parse(text)
    what, parent, (name, at), new = faults(tree)[number]
    line = getattr(new, "lineno", 0)
    if at is None:
        old = getattr(parent, name)
        setattr(parent, name, new)
    else:
        old = getattr(parent, name)[at]
        getattr(parent, name)[at] = new
    said = f"{path.relative_to(SOURCE)}:{line} {what}: {' '.join(ast.unparse(old).split())[:70]}"
    return ast.fix_missing_locations(tree), said


def places(path: Path) -> list[int]:
    """The line of every fault of a module."""
    return [getattr(new, "lineno", 0) for _, _, _, new in faults(ast.parse(path.read_text()))]
