"""The course that runs: twenty lessons in the order of the subject, each a statement, code that shows
it, a picture, what breaks, and exercises that are checked.

    eckart learn                        the lessons
    eckart learn --to notebooks         all of them as notebooks

>>> from eckart.learn import check
>>> check("1a", 21)
Right. The first 21 components keep just over 90 % of the variance of the digits.
True
>>> check("1a", 20)
Not yet. Add up explained_variance_ratio_ until the sum passes 0.9.
False
"""

from __future__ import annotations

from eckart.learn.data import digits, generator, hide, low_rank, photograph, relative_error, wine
from eckart.learn.exercises import check, solution
from eckart.learn.notebooks import Lesson, lessons, to_notebook, write_notebooks

__all__ = [
    "Lesson",
    "check",
    "digits",
    "generator",
    "hide",
    "lessons",
    "low_rank",
    "photograph",
    "relative_error",
    "solution",
    "to_notebook",
    "wine",
    "write_notebooks",
]
