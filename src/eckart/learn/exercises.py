"""The exercises of the lessons, with their answers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eckart.errors import invalid


class Exercise(NamedTuple):
    """The right answer, how near is near enough, a hint, and why it is right."""

    answer: Any
    tolerance: float
    hint: str
    why: str


EXERCISES = {
    "1a": Exercise(
        21,
        0,
        "Add up explained_variance_ratio_ until the sum passes 0.9.",
        "The first 21 components keep just over 90 % of the variance of the digits.",
    ),
    "1b": Exercise(
        1319.5,
        0.1,
        "Subtract the second number from the first; it is half a squared length.",
        "It is 1/2 ||(I - P) mean||^2, what the plane through the origin misses of the mean.",
    ),
    "2a": Exercise(
        0.967,
        0.003,
        "Fit PCA(10) to each class of X[:1400] and take the class of the least distance.",
        "Ten planes know 96.7 % of digits that they have not seen, without any training of a border.",
    ),
    "2b": Exercise(
        61,
        0,
        "Use Projection.onto of the transposed centred data, and its rank.",
        "Three pixels in the corners are 0 in every image.",
    ),
    "3a": Exercise(
        "proline",
        0,
        "Look at top_features(1) of the unscaled fit.",
        "Proline is measured in hundreds, everything else in ones and tens.",
    ),
    "3b": Exercise(
        273.4,
        0.1,
        "Add up the eigenvalues behind the fifth, and halve the sum.",
        "R = 1/2 sum_{i>5} l_i.",
    ),
    "4a": Exercise(
        95,
        15,
        "Each step shrinks the residual by about 0.915: how many until 1e-5?",
        "log(1e-5) / log(0.915) is 130 from a residual of 1; the start is nearer than that.",
    ),
    "4b": Exercise(
        2.0,
        1e-9,
        "The start has no part along the first axis, and a product gives it none.",
        "Zeros are exact, so the part along the first axis stays 0. The least rounding there would grow "
        "by a half in each step.",
    ),
    "5a": Exercise(
        (64, 3),
        0,
        "P - I and Sigma are 64 x 64, W^T is 64 x 3.",
        "It has the shape of V, so it is dR/dV.",
    ),
    "5b": Exercise(
        0.0,
        1e-6,
        "V A A^-1 W = V W.",
        "The product is the same matrix, so every reconstruction is.",
    ),
    "6a": Exercise(
        430.7,
        6.0,
        "reconstruction_error of the 1,400 rows; compare it with that of PCA(2).",
        "Without nonlinearity it is PCA again, up to how far the steps have come.",
    ),
    "6b": Exercise(
        "pca",
        0,
        "Fit both to X[:200] and compare reconstruction_error(X[1400:]).",
        "The network has 25,000 weights to learn from 200 rows.",
    ),
    "7a": Exercise(
        8,
        0,
        "The relative error is sqrt(sum_{i>k} s_i^2 / sum s_i^2).",
        "Eight directions hold 99 % of the squares.",
    ),
    "7b": Exercise(1.343, 0.002, "||A||_2 is the largest singular value left.", "It is s_21."),
    "8a": Exercise(
        4.605,
        0.005,
        "Solve x(t) = a/2 for t: c exp(2at) = a - c.",
        "t = ln((a - c) / c) / 2a: the saddle holds on to it for a time that grows with -ln c.",
    ),
    "8b": Exercise(
        0.0, 1e-3, "The product of equal factors is a square.", "As near to -1 as a square comes."
    ),
    "9a": Exercise(
        2, 0, "It is a sum of two matrices of rank 1.", "So it has no inverse without the ridge."
    ),
    "9b": Exercise(
        "yes",
        0,
        "ALS(3, l2=0.1).fit(seen[1:]).transform(seen[:1]), and the root mean square over hidden cells.",
        "0.33 against 0.51, without a new fit.",
    ),
    "10a": Exercise(
        2.0,
        0,
        "Run the loop for 400 iterations with each of them.",
        "With a share p of the entries seen, steps up to about 2 are safe; 2.5 is not.",
    ),
    "10b": Exercise(
        "seen", 0, "Compare the two numbers of the last line.", "Too many ranks fit what they see."
    ),
    "11a": Exercise(
        32.54,
        0.02,
        "It is the spectral norm of the observed entries, and path_taus_[0].",
        "Above it no direction of the data pays for its penalty.",
    ),
    "11b": Exercise(
        0.5,
        0,
        "Its dual ascent steps Y <- Y + eta Pi(A - shrink_tau(Y)): of which function is shrink_tau the prox?",
        "shrink_tau(Y) minimises tau ||B||_* + 1/2 ||B - Y||^2.",
    ),
    "12a": Exercise(156, 0, "k (n + m - k).", "2 (40 + 40 - 2) = 156."),
    "12b": Exercise(
        0.0,
        1e-3,
        "What do the entries that were seen say?",
        "Nothing that was seen speaks of it: the matrix is not incoherent.",
    ),
    "13a": Exercise(
        -0.8942, 0.001, "The largest of the numbers on the right.", "Two of four starts reach it."
    ),
    "13b": Exercise(
        0.1097,
        0.001,
        "The density of the spike grows by the factor 10 at three of 63 points.",
        "3/63 ln 10, each time, without end.",
    ),
    "14a": Exercise(
        0.01, 0.02, "Print np.mean(shares.max(axis=1) > 0.9) for alpha = 10.", "Hardly any."
    ),
    "14b": Exercise(
        0.0, 1e-12, "What does a table of counts know of the order?", "Nothing: a bag of words."
    ),
    "15a": Exercise(
        1.18, 0.01, "reconstruction_err_ over the floor.", "The price of never subtracting is 18 %."
    ),
    "15b": Exercise(
        0.0,
        1e-6,
        "sum N log p is minus the KL divergence, up to what depends on N alone.",
        "They are one objective.",
    ),
    "16a": Exercise(-1.609, 0.005, "-log r.", "-log 5."),
    "16b": Exercise(
        0.693,
        0.005,
        "There are then half as many noise words as pairs: r = 1/2.",
        "-log(1/2): drawn for each centre, noise shifts the optimum the other way.",
    ),
    "17a": Exercise(0.595, 0.001, "(5 / 10) ** 0.75.", "Half as frequent weighs .6."),
    "17b": Exercise(
        0, 0, "Count the answers in brackets.", "The nearest word is one of the question."
    ),
    "18a": Exercise(0.02, 1e-9, "2 / L, and L is the largest curvature.", "2/100."),
    "18b": Exercise(
        0.316,
        0.001,
        "The moments start at 0: m = .1 g, v = .001 g^2.",
        ".1 * .1 / sqrt(.001) = .316; with the correction it is .1.",
    ),
    "19a": Exercise(
        0.25**10,
        1e-9,
        "The slope s (1 - s) is largest at s = 1/2.",
        "A quarter to the tenth: 9.5e-7.",
    ),
    "19b": Exercise(
        0.0, 1e-9, "phi' of tanh is 1 - tanh^2.", "The same chain rule, another slope."
    ),
    "20a": Exercise(
        160, 0, "3 x 3 and a bias, 16 times.", "A dense layer from 64 pixels to 16 maps has 66,560."
    ),
    "20b": Exercise(
        "yes",
        0,
        "Compare scipy.signal.correlate2d with h[::-1, ::-1].",
        "The sum runs the other way.",
    ),
}


def check(name: str, answer: Any) -> bool:
    """Say whether an answer to an exercise is right, with the reason or a hint."""
    exercise = _named(name)
    right = _fits(exercise, answer)
    print(f"Right. {exercise.why}" if right else f"Not yet. {exercise.hint}")
    return right


def solution(name: str) -> str:
    """The answer to an exercise and why.

    >>> print(solution("3a"))
    'proline'. Proline is measured in hundreds, everything else in ones and tens.
    """
    exercise = _named(name)
    return f"{exercise.answer!r}. {exercise.why}"


def _named(name: str) -> Exercise:
    if name not in EXERCISES:
        raise invalid("name", name, f"one of {', '.join(EXERCISES)}")
    return EXERCISES[name]


def _fits(exercise: Exercise, answer: Any) -> bool:
    wanted = exercise.answer
    if isinstance(wanted, str):
        return str(answer).strip().lower() == wanted.lower()
    try:
        came = np.asarray(answer, np.float64)
    except (TypeError, ValueError):
        return False
    wanted = np.asarray(wanted, np.float64)
    return bool(came.shape == wanted.shape and (np.abs(came - wanted) <= exercise.tolerance).all())
