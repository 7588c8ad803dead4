"""What is an experiment? Hypothesis, prediction, command, trials, stopping rule, result: one object.

What to try next is a function of the design and the trials so far, so an experiment that was killed goes on
from its last finished trial, anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

from firstfault_tools.dataclass import dataclass
from firstfault_tools.experiments.border import border_space
from firstfault_tools.experiments.hosts import EVERYWHERE, HOST, NOTHING, SIZE, host_space
from firstfault_tools.experiments.kinds import Kind, Verdict
from firstfault_tools.experiments.minimising import Minimum, next_set
from firstfault_tools.experiments.pairs import Routes, mark_slow, pair_space
from firstfault_tools.experiments.search import Space, choose, weigh
from firstfault_tools.experiments.sequential import (
    StoppingRule,
    decide,
    expect_trials,
    least_trials,
)
from firstfault_tools.experiments.trial import Criterion, Outcome, Trial
from firstfault_tools.findings import Category


@dataclass(frozen=True, slots=True)
class About:
    """The explanation of an incident that the experiment is to settle; empty: none in particular.

    finding: the kind of finding that it rests on.
    """

    root_cause: str = ""
    finding: str = ""
    category: Category | None = None


@dataclass(frozen=True)
class Design:
    """Everything that is fixed before the first trial.

    fails_if_true: the prediction is that trials fail (else that they work). subjects: sizes, hosts, commits,
    differences or variants, in order. pairs: look for pairs of hosts, too. group_sizes: numbers of hosts a
    trial may have. routes: what lies between hosts. limit_s: seconds for each trial. source: folder or files
    that the trials are made from.
    """

    kind: Kind
    hypothesis: str
    prediction: str
    command: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    about: About = About()
    rule: StoppingRule = StoppingRule()
    criterion: Criterion = Criterion()
    limit_s: float = 600.0
    fails_if_true: bool = True
    what: str = "value"
    pairs: bool = False
    group_sizes: tuple[int, ...] = ()
    routes: Routes = Routes()
    changes: tuple[str, ...] = ()
    source: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Ask:
    """The next trial."""

    subject: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What came out. culprits: hosts, commit, differences, border (works, fails) or component, by kind.

    probability: belief in it given the trials, 0 to 1; None where a test with error rates decided.
    least: mean trials that no procedure can do with fewer of (Fano); 0 where none is known.
    """

    verdict: Verdict
    says: str
    culprits: tuple[str, ...] = ()
    form: str = ""
    probability: float | None = None
    trials: int = 0
    least: float = 0.0


def next_step(design: Design, trials: Sequence[Trial]) -> Ask | Result:
    """The next trial, or the result. Raises InvalidParameter where the design makes no sense."""
    unusable = next((t for t in trials if t.outcome is Outcome.UNUSABLE), None)
    if unusable is not None:
        return _end(design, trials, Verdict.INCONCLUSIVE, f"no trial can run: {unusable.reason}")
    if design.kind is Kind.TEST:
        step = _test(design, trials)
    elif design.kind is Kind.SETTINGS:
        step = _minimise(design, trials)
    elif design.kind is Kind.COMPONENT:
        step = _go_through(design, trials)
    else:
        step = _search(design, trials)
    if isinstance(step, Ask) and len(trials) >= design.rule.most_trials:
        return _end(design, trials, Verdict.INCONCLUSIVE, f"open after {len(trials)} trials{_leading(design, trials)}")  # fmt: skip
    return step


def _end(
    design: Design,
    trials: Sequence[Trial],
    verdict: Verdict,
    says: str,
    culprits: Sequence[str] = (),
    form: str = "",
    probability: float | None = None,
    rate: float | None = None,
) -> Result:
    candidates = len(design.subjects)
    if design.kind is Kind.TEST:
        there, gone = expect_trials(design.rule)
        least = there if design.fails_if_true == (verdict is Verdict.SUPPORTED) else gone
    elif design.kind is Kind.COMPONENT:
        least = 0.0
    else:
        least = least_trials(
            max(candidates, 2) if design.kind is not Kind.SETTINGS else candidates + 1,
            design.rule,
            rate,
        )
    return Result(verdict, says, tuple(culprits), form, probability, len(trials), round(least, 1))


def tally(trials: Sequence[Trial]) -> tuple[int, int]:
    """(failed, passed)."""
    outcomes = [t.outcome for t in trials]
    return outcomes.count(Outcome.FAILED), outcomes.count(Outcome.PASSED)


def _test(design: Design, trials: Sequence[Trial]) -> Ask | Result:
    failed, passed = tally(trials)
    if sum(t.outcome is Outcome.SKIPPED for t in trials) >= 3 and not failed + passed:
        return _end(
            design, trials, Verdict.INCONCLUSIVE, f"it cannot be tried: {trials[-1].reason}"
        )
    fails = decide(failed, passed, design.rule)
    if fails is None:
        return Ask(design.subjects)
    verdict = Verdict.SUPPORTED if fails is design.fails_if_true else Verdict.REFUTED
    counted = f"{failed} of {failed + passed} trials failed"
    return _end(design, trials, verdict, f"{counted}; predicted was: {design.prediction}", design.subjects)  # fmt: skip


def _go_through(design: Design, trials: Sequence[Trial]) -> Ask | Result:
    """Every variant as often as the rule asks, in turns, so that a drift of the machine hits all alike."""
    wanted = max(1, design.rule.most_trials // max(1, len(design.subjects)))
    done = {s: sum(t.subject == (s,) for t in trials) for s in design.subjects}
    skipped = {t.subject[0] for t in trials if t.outcome is Outcome.SKIPPED}
    left = [s for s in design.subjects if done[s] < wanted and s not in skipped]
    if left:
        return Ask((min(left, key=lambda s: (done[s], design.subjects.index(s))),))
    counts = ", ".join(
        f"{s} {tally([t for t in trials if t.subject == (s,)])[0]} of {done[s]} failed"
        for s in design.subjects
        if s not in skipped
    )
    return _end(design, trials, Verdict.INCONCLUSIVE, counts)


def _minimise(design: Design, trials: Sequence[Trial]) -> Ask | Result:
    found = next_set(design.subjects, trials, design.rule)
    if not isinstance(found, Minimum):
        return Ask(found)
    if not found.needed:
        return _end(design, trials, Verdict.REFUTED, found.reason)
    one = len(found.needed) == 1
    says = f"{'this difference makes' if one else 'these differences together make'} it fail: {'; '.join(found.needed)}"
    return _end(design, trials, Verdict.SUPPORTED, says, found.needed, "settings")


def make_space(design: Design, trials: Sequence[Trial]) -> Space:
    """The explanations of a search."""
    if design.kind is Kind.HOSTS:
        return host_space(design.subjects, design.group_sizes, design.pairs)
    if design.kind is Kind.PAIRS:
        return pair_space(design.subjects, design.routes, trials)
    return border_space(design.subjects)


def _search(design: Design, trials: Sequence[Trial]) -> Ask | Result:
    space = make_space(design, trials)
    belief = weigh(space, trials, design.rule)
    by_size = {n: float(w) for n, w in zip(space.names, belief.weights, strict=True) if n.startswith((SIZE, EVERYWHERE))}  # fmt: skip
    if design.kind is Kind.HOSTS and sum(by_size.values()) >= 1 - design.rule.false_alarm:
        size = int(max(by_size, key=lambda n: by_size[n]).split()[1])
        return _end(design, trials, Verdict.REFUTED, _say_size(trials, size), (), SIZE, round(sum(by_size.values()), 4), belief.rate)  # fmt: skip
    if belief.probability < 1 - design.rule.false_alarm:
        subject = choose(space, trials, design.rule, belief)
        if subject is not None and not (design.kind is Kind.PAIRS and not design.command):
            return Ask(subject)
        if design.kind is Kind.PAIRS and _by_chance(trials, design.rule.noise):
            told = _say_pair(design, trials, "none", "", 0)
            return _end(design, trials, *told[:3], told[3])
        return _end(design, trials, Verdict.INCONCLUSIVE, f"nothing more can be tried{_leading(design, trials)}")  # fmt: skip
    name = space.names[belief.best]
    form, _, rest = name.partition(" ")
    describe = {Kind.HOSTS: _say_host, Kind.PAIRS: _say_pair}.get(design.kind, _say_border)
    verdict, says, culprits, form = describe(design, trials, form, rest, belief.best)
    return _end(
        design, trials, verdict, says, culprits, form, round(belief.probability, 4), belief.rate
    )


Told = tuple[Verdict, str, tuple[str, ...], str]


def _say_host(design: Design, trials: Sequence[Trial], form: str, rest: str, _: int) -> Told:
    culprits = tuple(rest.split())
    if form == NOTHING:
        return Verdict.REFUTED, f"the fault did not show in {len(trials)} trials on any group of hosts", (), form  # fmt: skip
    many = all if form == "together" else any
    inside = tally([t for t in trials if many(c in t.subject for c in culprits)])
    outside = tally([t for t in trials if not many(c in t.subject for c in culprits)])
    names = " and ".join(culprits)
    who = {
        HOST: f"host {names} carries the fault",
        "together": f"hosts {names} fail only together: the path between them, or what they share",
        "either": f"hosts {names} each carry a fault",
    }[form]
    counted = f"{inside[0]} of {sum(inside)} trials with {'it' if len(culprits) == 1 else 'them'} failed, {outside[0]} of {sum(outside)} without"
    return Verdict.SUPPORTED, f"{who}: {counted}", culprits, form


def _say_size(trials: Sequence[Trial], size: int) -> str:
    failing = [len(t.subject) for t in trials if t.outcome is Outcome.FAILED]
    if min(failing) <= min(len(t.subject) for t in trials):
        return "it fails on any group of hosts alike: it is no host"
    return f"it fails from about {size} hosts on (least that failed: {min(failing)}), whichever they are: it is the size and no host"


def _say_pair(design: Design, trials: Sequence[Trial], form: str, rest: str, best: int) -> Told:
    if form == "none":
        return Verdict.REFUTED, f"no pair of the {len(trials)} measured is slow beyond chance", (), form  # fmt: skip
    if form == "all":
        slow, fast = tally(trials)
        return Verdict.REFUTED, f"{slow} of {slow + fast} pairs are slow, whatever their path: it is no host, switch or port", (), form  # fmt: skip
    crosses = make_space(design, trials).allows([t.subject for t in trials])[best]
    inside = tally([t for t, on in zip(trials, crosses, strict=True) if on])
    outside = tally([t for t, on in zip(trials, crosses, strict=True) if not on])
    counted = f"{inside[0]} of {sum(inside)} pairs across it are slow, {outside[0]} of {sum(outside)} others{_say_rates(trials)}"
    who = {
        "host": f"every path of host {rest} is slow",
        "component": f"the slow pairs share {rest}",
        "group": f"{rest} are fast among themselves and slow towards all others: the uplink they share",
        "path": f"only the path {rest} is slow",
    }[form]
    culprits = tuple(rest.split()) if form == "group" else tuple(rest.split(" or "))
    return Verdict.SUPPORTED, f"{who}: {counted}", culprits, form


CHANCE = 0.05
"""Probability of as many slow pairs by noise alone from which on they are taken for it."""


def _by_chance(trials: Sequence[Trial], noise: float) -> bool:
    slow, fast = tally(trials)
    count = slow + fast
    fewer = sum(math.comb(count, k) * noise**k * (1 - noise) ** (count - k) for k in range(slow))
    return 1 - fewer > CHANCE


def _say_rates(trials: Sequence[Trial]) -> str:
    rates = {o: sorted(t.figure for t in trials if t.outcome is o and t.figure is not None) for o in (Outcome.FAILED, Outcome.PASSED)}  # fmt: skip
    if not all(rates.values()):
        return ""
    slow, fast = (r[len(r) // 2] for r in rates.values())
    return f"; median {slow:g} against {fast:g}"


def _say_border(design: Design, trials: Sequence[Trial], form: str, rest: str, best: int) -> Told:
    values = design.subjects
    if best == 0:
        return Verdict.REFUTED, f"{design.what} {values[0]} already fails: start from one that works", (), "good fails"  # fmt: skip
    if best == len(values):
        return Verdict.REFUTED, f"{design.what} {values[-1]} works: the failure was not reproduced", (), "bad works"  # fmt: skip
    works, fails = values[best - 1], values[best]
    at = {v: tally([t for t in trials if t.subject == (v,)]) for v in (works, fails)}
    counted = "; ".join(f"{v}: {f} of {f + p} trials failed" for v, (f, p) in at.items() if f + p)
    return Verdict.SUPPORTED, f"{design.what} {works} works, {fails} fails ({counted})", (works, fails), "border"  # fmt: skip


def _leading(design: Design, trials: Sequence[Trial]) -> str:
    """What is likeliest so far, for an experiment that ends open."""
    if design.kind in (Kind.TEST, Kind.SETTINGS, Kind.COMPONENT):
        failed, passed = tally(trials)
        return f": {failed} of {failed + passed} failed"
    space = make_space(design, trials)
    belief = weigh(space, trials, design.rule)
    return f"; likeliest is '{space.names[belief.best]}' with {belief.probability:.0%}"


def judge_figures(design: Design, trials: Sequence[Trial]) -> Sequence[Trial]:
    """Trials of measured pairs with what is slow decided beside each other, where no limit was given."""
    free = design.criterion.fails_below is None and design.criterion.fails_above is None
    if design.kind is not Kind.PAIRS or not free:
        return trials
    from firstfault_tools.experiments.pairs import Figure

    figures = [Figure(t.subject[0], t.subject[1], t.figure) for t in trials if t.figure is not None]
    return mark_slow(figures, design.routes)
