"""Attacks that can be repeated: each module has ``attempts(rng, folder)``, an endless iterator that
tries one thing at a time.

An attempt yields a short word for what came of it ("read", "refused", "old file" ...), which is
counted; it raises ``Broken`` where a promise did not hold. ``python -m campaign --seed 0 --minutes
10`` in ``tests`` (``make campaign``) runs them all; ``test_campaign.py`` runs a short share of
each, always the same one.
"""


class Broken(AssertionError):
    """A promise that did not hold."""
