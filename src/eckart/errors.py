"""Errors in one grammar: what a value must be, what it is, what to do."""

from __future__ import annotations

import re

LONGEST = 500
"""Characters of a value in an error: enough to know it again, few enough for one screen."""

SECRET = re.compile(r"(?<=[\w+.-][\w+.-]:/)(/?[^/@\s:]*):(?:\S*|[^@\n]*)@")
"""User and password of an address (also where a path has made one / of its two): the password ends
at the last @ of the word, since people write one inside of it, and may hold spaces."""
BARE_SECRET = re.compile(r"(?<![\w+./:@-])([\w.%+-]+):(?![/\\*])\S+@(?=[\w\[])")
"""The same where somebody left the scheme of the address away."""
SECRET_FIELD = re.compile(
    r"(?i)\b((?:\w*(?:pass|pwd|token|secret|key|credential|signature|bearer|jwt)\w*|sig|sas|auth)"
    r"\s*(?:=|%3D)\s*)('[^']*'|\{[^}]*\}|(?:(?!%3B)[^&;\s'\"])+)"
)
"""What follows password=, token=, sig= (of shared links) and their like, in the query of an address,
in one that is quoted inside of it (%3D is =, %3B is ;) and in messages of drivers."""

SPEAKS_OF_ADDRESS = re.compile(r"(?i):/|\bpassword\s*=|\w:\S+@\w").search


def without_secrets(text: str) -> str:
    """A text without the passwords of addresses in it.

    >>> without_secrets("mysql://ann:secret@db/shop?token=secret does not exist")
    'mysql://ann:***@db/shop?token=*** does not exist'
    >>> without_secrets("ann:secret@db/shop does not exist")
    'ann:***@db/shop does not exist'
    """
    text = BARE_SECRET.sub(r"\1:***@", SECRET.sub(r"\1:***@", text))
    return SECRET_FIELD.sub(r"\1***", text)


class EckartError(Exception):
    """Base of every error that eckart raises on purpose.

    ``code`` names the kind of error for programs, which need not read the sentence: that of the
    class, or ``"invalid.<name>"`` where one argument breaks its rule. A message that speaks of an
    address has no password in it, wherever the address was given.
    """

    code = "error"

    def __init__(self, *args: object, code: str = ""):
        super().__init__(
            *(
                without_secrets(a) if isinstance(a, str) and SPEAKS_OF_ADDRESS(a) else a
                for a in args
            )
        )
        if code:
            self.code = code


class InputError(EckartError, ValueError):
    """An argument or a value in the data cannot be used; the message names it and says what to do.

    >>> from eckart import PCA
    >>> PCA(n_components=9).fit([[1.0, 2.0], [3.0, 4.0]])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    eckart.errors.InputError: n_components must be 0 to 2 for data of 2 rows and 2 columns, got 9. Lower it. ...
    """

    code = "input"


class InputTypeError(InputError, TypeError):
    """An argument of a type that eckart cannot read."""

    code = "input.type"


class NoWordsError(InputError):
    """Texts in which no word is left; a part of a collection may have none."""

    code = "input.no_words"


class UnknownWord(InputError, KeyError):
    """A word or item that has no vector; it is a KeyError too, as of a dictionary.

    >>> from eckart import Vectors
    >>> Vectors(["king", "queen"], [[1.0], [2.0]])["kin"]
    Traceback (most recent call last):
    ...
    eckart.errors.UnknownWord: word must be one of the 2 words, got 'kin'. Near ones are 'king'.
    """

    code = "input.unknown_word"

    __str__ = Exception.__str__


class FileError(EckartError, ValueError):
    """A file is missing, truncated, tampered with, foreign, or from a newer version."""

    code = "file"


class MissingError(EckartError, ImportError):
    """An optional package is not installed; the message has the line that installs it."""

    code = "missing_package"


def invalid(name: str, value: object, rule: str, do: str = "") -> InputError:
    """An InputError that says what an argument must be, what it is, and what to do.

    >>> error = invalid("n_components", 0, "an int >= 1", "use None to choose it from the data")
    >>> error.code, str(error)
    ('invalid.n_components', 'n_components must be an int >= 1, got 0. Use None to choose it from the data.')
    """
    sentence = do[:1].upper() + do[1:] if re.match(r"[a-z]+[ ,]", do) else do
    advice = f". {sentence}." if do else ""
    code = "invalid." + re.sub(r"[\W_]+", "_", name).strip("_").lower()
    return InputError(f"{name} must be {rule}, got {written(value)}{advice}", code=code)


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
