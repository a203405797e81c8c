"""Errors in one grammar: what came, what was wanted, what to do."""

from __future__ import annotations

LONGEST = 500
"""Characters of a value in an error: enough to know it again, few enough for one screen."""


class EckartError(Exception):
    """Base of every error that eckart raises on purpose."""


class InputError(EckartError, ValueError):
    """An argument or a value in the data cannot be used; the message names it and says what to do.

    >>> from eckart import PCA
    >>> PCA(n_components=9).fit([[1.0, 2.0], [3.0, 4.0]])
    Traceback (most recent call last):
    ...
    eckart.errors.InputError: n_components=9 came, wanted 0 to 2 for data of 2 rows and 2 columns; lower it
    """


class InputTypeError(InputError, TypeError):
    """An argument of a type that no door of eckart takes."""


class NoWordsError(InputError):
    """Texts in which no word is left; a part of a collection may have none."""


class UnknownWord(InputError, KeyError):
    """A word or item that has no vector; it is a KeyError too, as of a dictionary.

    >>> from eckart import Vectors
    >>> Vectors(["king", "queen"], [[1.0], [2.0]])["kin"]
    Traceback (most recent call last):
    ...
    eckart.errors.UnknownWord: word 'kin' came, wanted one of the 2 words; near ones are 'king'
    """

    __str__ = Exception.__str__


class FileError(EckartError, ValueError):
    """A file is missing, truncated, tampered with, foreign, or from a newer version."""


class MissingError(EckartError, ImportError):
    """An optional package is not installed; the message has the line that installs it."""


def wrong(name: str, came: object, wanted: str, do: str = "") -> InputError:
    """An InputError in the house grammar: ``name=came came, wanted ...; do``."""
    return InputError(f"{name}={written(came)} came, wanted {wanted}" + (f"; {do}" if do else ""))


def written(value: object) -> str:
    """A value as an error writes it: as Python writes it, cut where it is long; what cannot be
    written (an int of 5,000 digits) by its type.

    >>> written("a" * 1000)[-6:], written(10**5000)
    ('aa ...', 'a value of type int')
    """
    try:
        words = repr(value)
    except Exception:
        return f"a value of type {type(value).__name__}"
    return words if len(words) <= LONGEST else words[:LONGEST] + " ..."
