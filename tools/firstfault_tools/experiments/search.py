"""Which explanation do the trials leave, and what is worth trying next? Noisy bisection by Bayes' rule.

An explanation says which subjects can fail. Where it lets a subject fail, a trial fails at the fault's rate,
else at the noise; the next subject is the one whose trial tells most. For an ordered border this is
Horstein's bisection with noise (IEEE Trans. Information Theory 9 (1963) 136-143), for groups it is adaptive
noisy group testing (Aldridge, Johnson, Scarlett 2019, https://arxiv.org/abs/1902.06002).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.experiments.sequential import StoppingRule, clip
from firstfault_tools.experiments.trial import Outcome, Trial

if TYPE_CHECKING:
    from numpy.typing import NDArray

Subject = tuple[str, ...]


@dataclass(frozen=True)
class Space:
    """The explanations, and what can be tried.

    names, priors: of each explanation; priors need not add up to 1. allows: for subjects, a matrix
    (explanation, subject) of whether the explanation lets the subject fail. propose: subjects worth
    weighing, given the weights of the explanations.
    """

    names: tuple[str, ...]
    priors: tuple[float, ...]
    allows: Callable[[Sequence[Subject]], NDArray[Any]]
    propose: Callable[[NDArray[Any]], Sequence[Subject]]


@dataclass(frozen=True, slots=True)
class Belief:
    """Weights of the explanations after some trials. rate: the fault's likeliest rate under the best one."""

    weights: NDArray[Any]
    best: int
    probability: float
    rate: float
    joint: NDArray[Any]


def weigh(space: Space, trials: Sequence[Trial], rule: StoppingRule) -> Belief:
    """Posterior over explanations and rates. Trials that were skipped tell nothing."""
    import numpy as np

    told = [t for t in trials if t.outcome in (Outcome.PASSED, Outcome.FAILED)]
    failed = np.array([t.outcome is Outcome.FAILED for t in told], dtype=float)
    rates = np.array([clip(r) for r in rule.rates])
    noise = clip(rule.noise)
    log = np.tile(np.log(np.array(space.priors))[:, None], (1, len(rates)))
    if told:
        allows = space.allows([t.subject for t in told]).astype(float)
        bad, good = allows @ failed, allows @ (1 - failed)
        rest_bad, rest_good = failed.sum() - bad, (1 - failed).sum() - good
        log = log + bad[:, None] * np.log(rates) + good[:, None] * np.log(1 - rates)
        log = log + (rest_bad * math.log(noise) + rest_good * math.log(1 - noise))[:, None]
    joint = np.exp(log - log.max())
    joint /= joint.sum()
    weights = joint.sum(axis=1)
    best = int(np.argmax(weights))
    likeliest = float(rates[int(np.argmax(joint[best]))])
    return Belief(weights, best, float(weights[best]), likeliest, joint)


MOST_WEIGHED = 400
"""Subjects whose information is computed for one choice; more change it by less than a hundredth of a bit."""


def choose(
    space: Space, trials: Sequence[Trial], rule: StoppingRule, belief: Belief
) -> Subject | None:
    """The subject whose trial tells most about the explanation; None where nothing is left to try."""
    import numpy as np

    skipped = Counter(t.subject for t in trials if t.outcome is Outcome.SKIPPED)
    tried = Counter(t.subject for t in trials)
    subjects = [s for s in dict.fromkeys(space.propose(belief.weights)) if not skipped[s]]
    if not subjects:
        return None
    subjects = subjects[:MOST_WEIGHED]
    rates = np.array([clip(r) for r in rule.rates])
    noise = clip(rule.noise)
    allows = space.allows(subjects).astype(float)
    # chance of failure of each subject under each explanation, its rate averaged over what is believed
    share = belief.joint @ rates / np.maximum(belief.weights, 1e-300)
    chance = noise + allows * (share - noise)[:, None]
    mean = belief.weights @ chance

    def bits(p: NDArray[Any]) -> NDArray[Any]:
        q = np.clip(p, 1e-12, 1 - 1e-12)
        return np.asarray(-q * np.log2(q) - (1 - q) * np.log2(1 - q))

    told = bits(mean) - belief.weights @ bits(chance)
    order = sorted(
        range(len(subjects)),
        key=lambda i: (-round(float(told[i]), 9), tried[subjects[i]], len(subjects[i]), i),
    )
    best = order[0]
    return subjects[best] if told[best] > 1e-9 else None
