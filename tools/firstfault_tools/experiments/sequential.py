"""After how many trials may one stop? Wald's sequential probability ratio test.

A. Wald, "Sequential Tests of Statistical Hypotheses", Annals of Mathematical Statistics 16 (1945) 117-186,
https://doi.org/10.1214/aoms/1177731118. Of all tests with the same two error rates it needs the fewest
trials on average (Wald and Wolfowitz 1948, https://doi.org/10.1214/aoms/1177730197).
"""

from __future__ import annotations

import math

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter

LEAST = 1e-9
"""A rate of 0 or 1 is taken as this far from it, so that one trial decides and no logarithm is infinite."""
RATES = (1.0, 0.8, 0.6, 0.45, 0.3, 0.2, 0.1)
"""Rates at which a fault may show per trial, where nobody says: from always to one run in ten."""


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """When the trials are enough.

    rate: share of trials in which the fault shows where it is (0 to 1); None where nobody knows it. noise:
    share of trials that fail where it is not. false_alarm: accepted probability to support what is wrong;
    miss: to refute what is right. most_trials: then it is inconclusive.
    """

    rate: float | None = None
    noise: float = 0.01
    false_alarm: float = 0.01
    miss: float = 0.01
    most_trials: int = 300

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate <= 1:
            raise InvalidParameter("rate", f"must lie above 0 and at most at 1, got {self.rate:g}")
        if not 0 <= self.noise < (self.rate if self.rate is not None else RATES[-1]):
            raise InvalidParameter("noise", f"must be at least 0 and below the rate, got {self.noise:g}")  # fmt: skip
        for name in ("false_alarm", "miss"):
            if not 0 < getattr(self, name) < 0.5:
                raise InvalidParameter(name, "must lie between 0 and 0.5")
        if not 1 <= self.most_trials <= 10_000:
            raise InvalidParameter("most_trials", "must lie between 1 and 10000")

    @property
    def rates(self) -> tuple[float, ...]:
        """The rate, or those that it may have."""
        return RATES if self.rate is None else (self.rate,)


def clip(rate: float) -> float:
    """A rate whose logarithm, and that of its complement, is finite."""
    return min(max(rate, LEAST), 1 - LEAST)


def weigh_ratio(failed: int, passed: int, rule: StoppingRule) -> float:
    """Logarithm of the likelihood that the fault is there (its rate, or the mean of those it may have)
    over the likelihood that it is not."""
    e = clip(rule.noise)
    absent = failed * math.log(e) + passed * math.log(1 - e)
    told = [failed * math.log(r) + passed * math.log(1 - r) for r in map(clip, rule.rates)]
    top = max(told)
    return top + math.log(sum(math.exp(t - top) for t in told) / len(told)) - absent


def decide(failed: int, passed: int, rule: StoppingRule) -> bool | None:
    """True: the fault is there; False: it is not; None: try again.

    Where the rate is unknown, absence is shown against the lowest rate that is thought possible.
    """
    ratio = weigh_ratio(failed, passed, rule)
    if ratio >= math.log((1 - rule.miss) / rule.false_alarm):
        return True
    lowest = StoppingRule(min(rule.rates), rule.noise, rule.false_alarm, rule.miss)
    if weigh_ratio(failed, passed, lowest) <= math.log(rule.miss / (1 - rule.false_alarm)):
        return False
    return None


def expect_trials(rule: StoppingRule) -> tuple[float, float]:
    """Mean trials until the decision where the fault is there, and where it is not (Wald 1945, section 4)."""
    up = math.log((1 - rule.miss) / rule.false_alarm)
    down = math.log(rule.miss / (1 - rule.false_alarm))
    r, e = clip(min(rule.rates)), clip(rule.noise)
    fail, works = math.log(r / e), math.log((1 - r) / (1 - e))
    there = ((1 - rule.miss) * up + rule.miss * down) / (r * fail + (1 - r) * works)
    gone = (rule.false_alarm * up + (1 - rule.false_alarm) * down) / (e * fail + (1 - e) * works)
    return max(1.0, there), max(1.0, gone)


def entropy(p: float) -> float:
    """Bits of one yes-or-no answer."""
    return 0.0 if p <= 0 or p >= 1 else -p * math.log2(p) - (1 - p) * math.log2(1 - p)


def capacity(rate: float, noise: float) -> float:
    """Most bits that one trial can tell on average (capacity of the asymmetric binary channel)."""
    r, e = clip(rate), clip(noise)
    tried = (k / 1000 for k in range(1, 1000))
    return max(entropy(m * r + (1 - m) * e) - m * entropy(r) - (1 - m) * entropy(e) for m in tried)


def least_trials(candidates: int, rule: StoppingRule, rate: float | None = None) -> float:
    """Mean trials below which no procedure names one of `candidates` with this error rate.

    Fano's inequality for a channel with feedback: each trial tells at most its capacity, and
    (1 - error) log2(candidates) - h(error) bits are needed (Cover and Thomas, Elements of Information
    Theory, 2nd ed., sections 2.10 and 7.12). rate: what the fault's rate turned out to be.
    """
    if candidates < 2:
        return 0.0
    known = rate if rate is not None else rule.rate if rule.rate is not None else min(RATES)
    bits = (1 - rule.false_alarm) * math.log2(candidates) - entropy(rule.false_alarm)
    return bits / capacity(known, rule.noise)
