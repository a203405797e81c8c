"""scikit-learn's own tests, run on eckart's classes: ``make test-dropin``.

The test modules that ship inside the installed scikit-learn are collected with the classes of
eckart in place of those of the same name. What scikit-learn promises in public must pass. What is
left is in REASONS, each with why; a test listed there that passes, or one that fails without being
listed, ends the run with an error, so that the table stays true.

The words of errors and warnings are compared too: for a flaw that scikit-learn names, eckart's
sentence has scikit-learn's words in it.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import Any

MODULES = (
    "decomposition.tests.test_pca",
    "decomposition.tests.test_incremental_pca",
    "decomposition.tests.test_truncated_svd",
    "decomposition.tests.test_nmf",
    "decomposition.tests.test_online_lda",
    "mixture.tests.test_gaussian_mixture",
)
CLASSES = {
    "sklearn.decomposition": (
        "PCA",
        "IncrementalPCA",
        "TruncatedSVD",
        "NMF",
        "MiniBatchNMF",
        "non_negative_factorization",
        "LatentDirichletAllocation",
    ),
    "sklearn.mixture": ("GaussianMixture",),
}
SPARSE = "eckart takes sparse data here; the test wants a refusal", r"DID NOT RAISE"
OPEN = "eckart can do this; the test wants a refusal", r"DID NOT RAISE"
START = (
    "compares entries of two solvers, or of two losses, far from the end",
    r"Not equal to tolerance|assert_allclose",
)


def private(name: str, public: str = "") -> tuple[str, str]:
    """A test that asks for a private name of scikit-learn's class."""
    return (
        f"asks for a private name of scikit-learn's class ({name}){public}",
        rf"no attribute '{name}'",
    )


REASONS = {
    r"test_sparse_pca_solver_error": SPARSE,
    r"test_incremental_pca_sparse": SPARSE,
    r"test_pca_validation\[(arpack|randomized)-(0|2)-": OPEN,
    r"test_n_components_none\[data\d-arpack-3\]": (
        "eckart finds all components by Lanczos steps, ARPACK all but one",
        r"assert 4 == 3",
    ),
    r"test_pca_score\[": (
        "whitening changes codes, not the likelihood of a row; scikit-learn's score "
        "changes with it",
        r"assert [\d.]+ > [\d.]+",
    ),
    r"test_pca_svd_solver_auto": private(
        "_fit_svd_solver", "; fit_.plan says which solver was taken, and why"
    ),
    r"test_incremental_pca_partial_fit_float_division": (
        "sets the count of rows by hand; eckart keeps it with the statistic and refuses",
        r"n_samples_seen_ .* cannot be set",
    ),
    r"test_nmf_multiplicative_update_sparse": START,
    r"test_nmf_decreasing\[mu\]": (
        "the penalty of squares is counted twice in the test's objective, and eckart's steps lower "
        "the objective that is documented",
        r"assert .*[\d.]+.* > ",
    ),
    r"test_nmf_minibatchnmf_equivalence": START,
    r"test_minibatch_nmf_partial_fit": START,
    r"test_nmf_regularization\[NMF-solver1\]": (
        "counts exact zeros of a fit whose optimum is zero: eckart stops where nothing "
        "is to be gained, at 0.006",
        r"W_regul_n_zeros|assert 0 > 0",
    ),
    r"test_nmf_custom_init_dtype_error\[(NMF|MiniBatchNMF)\]": (
        "eckart casts W and H to the type of X; the test wants a refusal",
        r"DID NOT RAISE",
    ),
    r"test_nmf_n_components_auto\[(NMF|MiniBatchNMF)\]": private(
        "_n_components", "; n_components_ is the public one"
    ),
    r"test_lda_preplexity_mismatch": private("_perplexity_precomp_distr"),
    r"test_verbosity\[csr_\w+-True-1-3-3\]": (
        "eckart starts nearer to the end: the perplexity stands still after two steps, "
        "and the fit stops",
        r"assert 3 == 2",
    ),
    r"test_check_weights": (
        "the test wants least and largest weight in each other's place in the sentence",
        r"Regex pattern did not match",
    ),
    r"test_regularisation": (
        "variances are kept above a floor by default, so collapsed data are no error; "
        "the test wants one",
        r"DID NOT RAISE",
    ),
    r"test_gaussian_mixture_precisions_init\[": private("_set_parameters"),
    r"test_gaussian_mixture_all_init_does_not_estimate_gaussian_parameters": (
        "counts calls of a private function",
        r"assert 0 == 1|call_count",
    ),
}
"""Why a test fails, and what its failure says: another failure of the same test is an error."""


EITHER = r"test_pca_score\["
"""Compares two numbers that are equal here: rounding decides, and the seed is left open."""


class Dropin:
    """A pytest plugin: the classes in their places before the modules are imported, and the table
    held against what happened."""

    def __init__(self) -> None:
        import eckart

        for place, names in CLASSES.items():
            for name in names:
                setattr(import_module(place), name, getattr(eckart, name))
        self.counts: dict[str, dict[str, int]] = {}
        self.wrong: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "call" and not (report.when == "setup" and report.outcome != "passed"):
            return
        module, _, name = report.nodeid.rpartition("/")[2].partition("::")
        module = module or report.location[0].rpartition("/")[2]
        row = self.counts.setdefault(
            module.removesuffix(".py"), {"passed": 0, "failed": 0, "skipped": 0}
        )
        row[report.outcome] += 1
        reason, failure = next(
            (told for pattern, told in REASONS.items() if re.match(pattern, name)), ("", "")
        )
        if report.outcome == "failed" and not reason:
            self.wrong.append(f"{name} failed and is not in the table")
        if report.outcome == "failed" and reason and not re.search(failure, report.longreprtext):
            self.wrong.append(
                f"{name} failed otherwise than the table says ({failure}): "
                f"{report.longreprtext.splitlines()[-1]}"
            )
        if report.outcome == "passed" and reason and not re.match(EITHER, name):
            self.wrong.append(f"{name} passed and is in the table: {reason}")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for module, row in self.counts.items():
            run = row["passed"] + row["failed"]
            terminalreporter.write_line(
                f"{module}: {row['passed']} of {run} pass, {row['failed']} differ for a "
                f"reason in the table, {row['skipped']} skipped"
            )
        for line in self.wrong:
            terminalreporter.write_line(line)


def main() -> int:
    import pytest

    plugin = Dropin()
    asked = [m for m in MODULES if not sys.argv[1:] or any(word in m for word in sys.argv[1:])]
    flags = [
        "-q",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore",
        "-c",
        "/dev/null",
        "--no-header",
        "--disable-warnings",
        "--show-capture=no",
        "-rN",
    ]
    for module in asked:
        ended = pytest.main([*flags, "--pyargs", f"sklearn.{module}"], plugins=[plugin])
        if ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return int(ended)
    return 1 if plugin.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
