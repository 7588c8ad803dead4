"""Which kinds of experiments are there, and what can come out of one?"""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """What is tried. test: one thing, again and again; the others search a list of subjects."""

    TEST = "test"
    SIZES = "sizes"
    HOSTS = "hosts"
    PAIRS = "pairs"
    COMMITS = "commits"
    SETTINGS = "settings"
    COMPONENT = "component"


class Verdict(StrEnum):
    """What the trials say of the hypothesis."""

    SUPPORTED = "supported"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"
