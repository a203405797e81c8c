"""English words that say how a sentence is built and not what it is about, by their part of
speech."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from eckart.errors import InputTypeError, invalid, written

_TEXT = """
a an the this that these those
i me my mine myself you your yours yourself yourselves he him his himself she her hers herself it its itself
we us our ours ourselves they them their theirs themselves one ones oneself
who whom whose which what whatever whichever whoever
all any both each either every few less least many more most much neither no none other others another same several some such
anybody anyone anything everybody everyone everything nobody nothing somebody someone something
about above across after against along among amongst around as at before behind below beneath beside besides between beyond by
despite down during except for from in inside into like near of off on onto out outside over past per since through throughout
till to toward towards under until up upon via with within without
and but or nor so yet if unless although though because while whereas whether than then else
am is are was were be been being do does did doing done have has had having
can could may might must shall should will would cannot
not never ever always often sometimes usually already still just only also too very quite rather almost even again once here there
where when why how however therefore thus hence instead otherwise indeed perhaps maybe now
aren't can't couldn't didn't doesn't don't hadn't hasn't haven't isn't mightn't mustn't needn't shouldn't wasn't weren't won't wouldn't
i'd i'll i'm i've you'd you'll you're you've he'd he'll he's she'd she'll she's it'd it'll it's we'd we'll we're we've
they'd they'll they're they've that's there's what's who's let's where's here's how's
get gets got getting make makes made making use used uses using see seen go goes went gone come comes came take takes taken
"""

ENGLISH = frozenset(_TEXT.split())

LISTS = ("english", "scikit-learn")
"""Lists that have a name: eckart's own, and the one that scikit-learn calls "english", word for
word."""


def stop_list(words: Any) -> frozenset[str]:
    """The words to leave out: a list by its name, or an iterable of words; None for none.

    >>> len(stop_list("english")) > 200, sorted(stop_list(["foo", "bar"]))
    (True, ['bar', 'foo'])
    """
    if words is None:
        return frozenset()
    if isinstance(words, str):
        if words not in LISTS:
            raise invalid(
                "stop_words", words, f"{', '.join(map(repr, LISTS))}, a list of words, or None"
            )
        return ENGLISH if words == "english" else _scikit_learn()
    found = (
        list(words) if isinstance(words, Iterable) and getattr(words, "ndim", 1) != 0 else [words]
    )
    for word in found:
        if not isinstance(word, str):
            raise InputTypeError(f"stop_words must hold words (str), got {written(word)}")
    return frozenset(found)


def _scikit_learn() -> frozenset[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(ENGLISH_STOP_WORDS)
