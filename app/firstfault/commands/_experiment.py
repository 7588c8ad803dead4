"""How is an experiment planned, carried out and printed on the command line?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from firstfault.errors import InputUnreadable, UsageError
from firstfault.plain_text import show_line
from firstfault_tools.errors import InvalidParameter, ToolError
from firstfault_tools.findings import Category

if TYPE_CHECKING:
    from firstfault.incidents.experiments import StoredExperiment
    from firstfault.service import Service
    from firstfault_tools.experiments.experiment import Design

CODES = {"supported": 1, "refuted": 0, "inconclusive": 4}


def show_below(text: str) -> None:
    click.echo(show_line(text), err=True)


def conduct(
    kind: Any, prediction: str, subjects: tuple[str, ...], options: dict[str, Any], *,
    default: str = "", finish: Callable[[Design], Design] = lambda design: design,
    measured: Sequence[Any] = (), **more: Any,
) -> None:  # fmt: skip
    """Design, plan or run."""
    from firstfault.experiments.outcome import choose_about
    from firstfault.experiments.planning import check_command, write_plan
    from firstfault.service import open_service
    from firstfault_tools.experiments.experiment import About, Design
    from firstfault_tools.experiments.sequential import StoppingRule
    from firstfault_tools.experiments.trial import Criterion

    incident = options["incident"]
    category = Category(options["category"]) if options["category"] else None

    def make(about: About) -> Design:
        rule = StoppingRule(
            *(options[n] for n in ("rate", "noise", "false_alarm", "miss", "most_trials"))
        )
        criterion = Criterion(
            *(options[n] for n in ("figure", "fails_below", "fails_above", "fails_if"))
        )
        hypothesis = options["hypothesis"] or default
        design = finish(Design(kind, hypothesis, prediction, tuple(options["command"]), subjects, about, rule,
                               criterion, options["limit_s"], **more))  # fmt: skip
        check_command(design)
        return design

    about = About(category=category)
    design = guard(lambda: make(about))
    if options["plan_only"]:
        for line in guard(lambda: list(write_plan(design))):
            click.echo(show_line(line))
        return
    if not measured:
        confirm(design, options["yes"])
    with open_service(workers=False) as service:
        if incident is not None:
            service.incident(incident)
        if options["explanation"] is not None:
            if incident is None:
                raise UsageError("--explanation is one of an incident; name it with --incident")
            chosen = choose_about(service.diagnosis(incident), options["explanation"])
            design = replace(design, about=replace(chosen, category=category or chosen.category))
        identity = service.record.experiments.create(design, incident)
        for number, trial in enumerate(_mark(design, measured), 1):
            service.record.experiments.add_trial(identity, number, trial)
        show_below(f"experiment {identity}; after a stop: firstfault experiment resume {identity}")
        go_on(service, identity, options["as_json"])


def _mark(design: Design, measured: Sequence[Any]) -> Sequence[Any]:
    from firstfault_tools.experiments.pairs import mark_slow

    return mark_slow(measured, design.routes) if measured else ()


def confirm(design: Design, yes: bool) -> None:
    """A person agrees to the command once; where nobody can be asked, --yes is needed."""
    from firstfault.experiments.planning import write_plan

    for line in guard(lambda: list(write_plan(design))):
        show_below(line)
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            "running trials needs --yes where nobody can be asked; --plan says what would be run"
        )
    click.confirm("run it?", abort=True, err=True)


def go_on(service: Service, experiment: str, as_json: bool) -> None:
    from firstfault.experiments.driver import Driver
    from firstfault.experiments.outcome import tell_incident

    try:
        stored = Driver(service.record, show_below).carry_on(experiment)
    except KeyboardInterrupt:
        show_below(
            f"stopped; `firstfault experiment resume {experiment}` goes on behind the last trial"
        )
        raise
    diagnosis = tell_incident(service, stored)
    print_stored(stored, as_json)
    if diagnosis is not None and not as_json:
        click.echo(f"incident {stored.incident} now: {diagnosis.verdict.value}, {diagnosis.confidence.value}: {show_line(diagnosis.root_cause)}")  # fmt: skip
    sys.exit(CODES[stored.result.verdict.value] if stored.result else 4)


def print_stored(stored: StoredExperiment, as_json: bool) -> None:
    from firstfault.experiments.outcome import say_stored, write_evidence

    if as_json:
        click.echo(write_evidence(stored).rstrip())
        return
    click.echo(show_line(say_stored(stored)))
    for line in _say_changes(stored):
        click.echo(show_line(f"  {line}"))
    for number, trial in enumerate(stored.trials[-20:], max(1, len(stored.trials) - 19)):
        shown = ", ".join(trial.subject[:4]) + (f" and {len(trial.subject) - 4} more" if len(trial.subject) > 4 else "")  # fmt: skip
        click.echo(show_line(f"  {number:>4}  {trial.outcome.value:<8} {trial.elapsed_s:7.1f} s  {shown}  {trial.reason}"))  # fmt: skip
    failing = next((t for t in reversed(stored.trials) if t.outcome.value == "failed" and t.tail), None)  # fmt: skip
    if failing is not None:
        click.echo(show_line(f"last line of the last failing trial: {failing.tail[-1]}"))


def _say_changes(stored: StoredExperiment) -> Sequence[str]:
    """What is otherwise at the size that fails, or what the commit says of itself."""
    result, design = stored.result, stored.design
    if result is None or result.form != "border":
        return ()
    if design.kind.value == "commits":
        from firstfault_tools.experiments.commits import Repository

        try:
            return (Repository(Path(design.source["repository"])).describe(result.culprits[1]),)
        except ToolError:
            return ()
    if not design.changes:
        return ()
    from firstfault_tools.experiments.sizes import Layout, describe_change

    layout = Layout(**{name: int(value) for name, value in design.source.items()})
    return describe_change(int(result.culprits[0]), int(result.culprits[1]), layout)


T = TypeVar("T")


def guard(make: Callable[[], T]) -> T:
    """What a tool refuses is a usage error that names the option."""
    try:
        return make()
    except InvalidParameter as error:
        raise UsageError(f"--{error}" if error.field != "command" else str(error)) from error
    except ToolError as error:
        raise InputUnreadable(str(error)) from error
    except ValueError as error:
        raise UsageError(f"not a list of numbers: {error}") from error


def read_text(name: str) -> str:
    from firstfault.experiments.preparation import read_configuration

    return read_configuration(Path(name))


def read_hosts(text: str) -> tuple[str, ...]:
    from firstfault_tools.experiments.host_list import expand_hosts

    listed = read_text(text[1:]) if text.startswith("@") else text
    return guard(lambda: expand_hosts(listed))
