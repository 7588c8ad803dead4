"""What would an experiment do? Its plan in words, before anything is run or stored."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from firstfault.experiments.driver import say_subject
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.experiments.component import VARIANTS
from firstfault_tools.experiments.experiment import Ask, Design, next_step
from firstfault_tools.experiments.kinds import Kind
from firstfault_tools.experiments.pairs import plan_rounds
from firstfault_tools.experiments.sequential import expect_trials, least_trials
from firstfault_tools.experiments.trial import fill_command


def check_command(design: Design) -> None:
    """Raises InvalidParameter where the command lacks what would make trials differ."""
    marks = {
        Kind.SIZES: ("value",), Kind.HOSTS: ("hosts", "hostfile"), Kind.PAIRS: ("a",), Kind.SETTINGS: ("config",),
    }.get(design.kind, ())  # fmt: skip
    if design.kind is Kind.PAIRS and not design.command:
        return
    fill_command(design.command, dict.fromkeys(marks, ""))
    if design.kind is Kind.PAIRS and not any("{b}" in part for part in design.command):
        raise InvalidParameter("command", "holds no {b}: a pair has two ends")


def write_plan(design: Design) -> Iterator[str]:
    """Lines of the plan."""
    rule = design.rule
    yield f"hypothesis   {design.hypothesis}"
    yield f"prediction   {design.prediction}"
    yield f"command      {shlex.join(design.command)}"
    if design.kind is Kind.COMPONENT:
        for name in design.subjects:
            yield f"variant      {name}: {VARIANTS[name]}"
        yield f"trials       {rule.most_trials} of at most {design.limit_s:g} s each, the variants in turns"
    else:
        yield from _write_rule(design)
    for change in design.changes:
        yield f"changes      {change}"
    step = next_step(design, ())
    if isinstance(step, Ask):
        yield f"first        {say_subject(design, step.subject)}"
    if design.kind is Kind.PAIRS and not rule.rate:
        rounds = plan_rounds(design.subjects)
        yield f"all pairs    {sum(map(len, rounds))}, in {len(rounds)} rounds in which no host is measured twice"
    yield "leaves       nothing of yours changed by Firstfault; what the command itself does is yours"


def _write_rule(design: Design) -> Iterator[str]:
    rule = design.rule
    rate = f"{rule.rate:.0%}" if rule.rate is not None else "not known (10 % to 100 % tried)"
    yield f"fault shows  in {rate} of trials where it is, in {rule.noise:.1%} elsewhere"
    yield f"error rates  {rule.false_alarm:.1%} (supported and wrong), {rule.miss:.1%} (refuted and right)"
    yield f"stops        when they are met, else after {rule.most_trials} trials of at most {design.limit_s:g} s"
    if design.kind is Kind.TEST:
        there, gone = expect_trials(rule)
        yield f"expected     {there:.0f} trials on average if it fails as the rate says, {gone:.0f} if it does not (Wald)"
    else:
        count = len(design.subjects)
        least = least_trials(max(2, count), rule)
        yield f"subjects     {count}: {', '.join(_short(s) for s in design.subjects[:6])}{' ...' if count > 6 else ''}"
        lowest = f" at {min(rule.rates):.0%}" if rule.rate is None else ""
        yield f"least        {least:.1f} trials on average{lowest}, whatever the procedure (Fano); a plain search of one by one takes {count}"


def _short(subject: str) -> str:
    return subject[:12] if len(subject) == 40 and subject.isalnum() else subject[:60]
