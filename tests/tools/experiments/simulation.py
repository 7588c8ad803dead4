"""A world in which trials fail by a known rule: what an experiment must find out."""

from __future__ import annotations

import random
from collections.abc import Callable

from firstfault_tools.experiments.experiment import Design, Result, next_step
from firstfault_tools.experiments.trial import Outcome, Trial

Chance = Callable[[tuple[str, ...]], float]


def drive(design: Design, chance: Chance, seed: int = 0) -> tuple[Result, list[Trial]]:
    """Trials until there is a result; `chance` gives the probability that a subject fails."""
    world, trials = random.Random(seed), list[Trial]()
    while True:
        step = next_step(design, trials)
        if isinstance(step, Result):
            return step, trials
        fails = world.random() < chance(step.subject)
        trials.append(Trial(step.subject, Outcome.FAILED if fails else Outcome.PASSED))
