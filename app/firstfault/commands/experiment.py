"""`firstfault experiment`: a hypothesis, a prediction, repeated trials of your own command, a result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from firstfault.commands._experiment import (
    conduct,
    confirm,
    go_on,
    guard,
    print_stored,
    read_hosts,
    read_text,
    show_below,
)
from firstfault.errors import CannotAnalyse, UsageError
from firstfault.plain_text import show_line, write_json
from firstfault_tools.findings import Category

if TYPE_CHECKING:
    from firstfault_tools.experiments.component import StepRecord
    from firstfault_tools.experiments.experiment import Design

HELP = """Test a hypothesis by trials of your own command, with a stopping rule and stated error rates.

\b
Examples:
  firstfault experiment test "direct copies are at fault" --expect works --rate 0.3 -- env NCCL_P2P_DISABLE=1 ./run.sh
  firstfault experiment sizes --good 8 --bad 64 --tensor 8 -- ./run.sh --nproc {value}
  firstfault experiment hosts gpu-[01-64] --rate 0.3 -- srun -w {hosts} ./run_20_steps.sh
  firstfault experiment pairs figures.txt --routes routes.yaml
  firstfault experiment commits --good v1.2 --bad HEAD -- ./test.sh
  firstfault experiment settings good.yaml bad.yaml -- python train.py --config {config}
  firstfault experiment component -- torchrun --nproc-per-node 8 train.py
  firstfault experiment resume ID

The command is an argument list: no shell reads it. A trial fails with any exit code but 0; 125 means "cannot
be tried here", 126 and 127 end the experiment. Each command is shown before it runs, each trial is on record
before the next; after a kill `resume` goes on. --plan runs and stores nothing. With --incident the result
joins that incident's evidence and its explanations are weighed again.

Exit codes: 0 refuted, 1 supported, 2 usage, 3 unreadable, 4 inconclusive or could not run.
"""
F = TypeVar("F", bound=Callable[..., Any])


@click.group("experiment", help=HELP)
def COMMAND() -> None:
    """Subcommands."""


def _trials(function: F) -> F:
    """Options of every experiment that runs trials."""
    options = [
        click.argument("command", nargs=-1, type=click.UNPROCESSED),
        click.option("--incident", help="The incident that it is to settle."),
        click.option("--explanation", type=click.IntRange(1), help="Which of the incident's explanations it is to settle, as counted there."),
        click.option("--hypothesis", default="", help="What you suspect, in a sentence."),
        click.option("--category", type=click.Choice([c.value for c in Category]), help="Class of the cause, where it is supported."),
        click.option("--rate", type=float, help="Share of trials in which the fault shows where it is; unknown where left out."),
        click.option("--noise", type=float, default=0.01, show_default=True, help="Share of trials that fail for other reasons."),
        click.option("--false-alarm", type=float, default=0.01, show_default=True, help="Accepted probability to support what is wrong."),
        click.option("--miss", type=float, default=0.01, show_default=True, help="Accepted probability to refute what is right."),
        click.option("--most", "most_trials", type=int, default=300, show_default=True, help="Trials after which it is inconclusive."),
        click.option("--limit", "limit_s", type=click.FloatRange(0.1), default=600.0, show_default=True, help="Seconds for a trial; past them it failed."),
        click.option("--figure", default="", help="Pattern with one group: a number that the command prints."),
        click.option("--fails-below", type=float, help="A figure below it is a failure."),
        click.option("--fails-above", type=float, help="A figure above it is a failure."),
        click.option("--fails-if", default="", help="Pattern of a line that shows the fault."),
        click.option("--plan", "plan_only", is_flag=True, help="Say what would be done; run and store nothing."),
        click.option("--yes", is_flag=True, help="Do not ask before the first trial."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object (firstfault.experiment/1)."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


@COMMAND.command("test")
@click.argument("claim")
@click.option("--expect", type=click.Choice(["fails", "works"]), required=True, help="What the trials do if the claim is right.")  # fmt: skip
@_trials
def test(claim: str, expect: str, **options: Any) -> None:
    """One thing, again and again: CLAIM predicts that COMMAND fails, or that it works."""
    from firstfault_tools.experiments.kinds import Kind

    fails = expect == "fails"
    rate = options["rate"]
    how = f"in about {rate:.0%} of trials" if rate else "at its usual rate"
    said = f"the command fails {how}" if fails else f"the command no longer fails ({how} before)"
    options["hypothesis"] = claim
    conduct(Kind.TEST, said, (claim[:60],), options, fails_if_true=fails)


@COMMAND.command("sizes")
@click.option("--good", type=int, required=True, help="A value that works.")
@click.option("--bad", type=int, required=True, help="A value that fails.")
@click.option("--what", default="", help="What the value is: batch size, layers, ranks.")
@click.option("--step", type=int, default=1, show_default=True)
@click.option("--values", default="", help="The values to try, by commas, instead of --step.")
@click.option(
    "--tensor",
    type=int,
    help="Tensor parallel size: values are ranks, and only valid ones are tried.",
)
@click.option("--pipeline", type=int, help="Pipeline parallel size, likewise.")
@click.option("--context", type=int, help="Context parallel size, likewise.")
@click.option("--expert", type=int, help="Expert parallel size, likewise.")
@click.option("--per-node", type=int, help="GPUs of a node, likewise.")
@click.option("--batch", type=int, help="Sequences of a step over all ranks, likewise.")
@click.option("--micro", type=int, help="Sequences of one pass of a rank.")
@_trials  # fmt: skip
def sizes(good: int, bad: int, what: str, step: int, values: str, **options: Any) -> None:
    """At which value of {value} does COMMAND begin to fail? Ranks, batch, layers, length."""
    from firstfault_tools.experiments import sizes as rules
    from firstfault_tools.experiments.kinds import Kind

    names = ("tensor", "pipeline", "context", "expert", "per_node", "batch", "micro")
    told = {n: v for n in names if (v := options.pop(n)) is not None}
    layout = guard(lambda: rules.Layout(**told))
    if values:
        listed = guard(lambda: tuple(dict.fromkeys(int(v) for v in values.split(","))))
        if good not in listed or bad not in listed:
            raise UsageError("--values: must hold --good and --bad")
    elif told:
        listed = guard(lambda: rules.list_sizes(good, bad, layout))
    else:
        listed = guard(lambda: rules.list_values(good, bad, step))
    what = what or ("ranks" if told else "value")
    conduct(
        Kind.SIZES, f"every {what} from there on fails, every one before works", tuple(map(str, listed)), options,
        default=f"there is a {what} between {good} and {bad} from which on it fails", what=what,
        finish=lambda design: _name_changes(design, layout) if told else design,
    )  # fmt: skip


def _name_changes(design: Design, layout: Any) -> Design:
    """What changes between the two ends, for the plan; between the neighbours it is said with the result."""
    from firstfault_tools.experiments.sizes import describe_change

    ends = int(design.subjects[0]), int(design.subjects[-1])
    told = {n: str(getattr(layout, n)) for n in layout.__slots__}
    return replace(design, changes=describe_change(*ends, layout), source=told)


@COMMAND.command("hosts")
@click.argument("hosts")
@click.option(
    "--pairs",
    is_flag=True,
    help="Look for two hosts as well: those that fail only together, and two bad ones.",
)
@click.option(
    "--group-sizes",
    default="",
    help="Numbers of hosts a trial may have, by commas; any where left out.",
)
@_trials  # fmt: skip
def hosts(hosts: str, pairs: bool, group_sizes: str, **options: Any) -> None:
    """Which of HOSTS (a,b,c or node-[01-64] or @FILE) carries the fault? Trials on groups of them."""
    from firstfault_tools.experiments.hosts import check_hosts
    from firstfault_tools.experiments.kinds import Kind

    names = read_hosts(hosts)
    sized = guard(lambda: tuple(int(v) for v in group_sizes.split(",") if v.strip()))
    guard(lambda: check_hosts(names, sized, pairs))
    conduct(
        Kind.HOSTS, "trials with it fail at the fault's rate, trials without it do not", names, options,
        default=f"one of {len(names)} hosts carries the fault", pairs=pairs, group_sizes=sized,
    )  # fmt: skip


@COMMAND.command("pairs")
@click.argument("source")
@click.option("--routes", type=click.Path(exists=True, dir_okay=False), help="YAML: what lies between hosts.")  # fmt: skip
@_trials
def pairs(source: str, routes: str | None, **options: Any) -> None:
    """Which host, switch or port makes pairs slow? SOURCE: a table of figures, or hosts for COMMAND {a} {b}."""
    from firstfault_tools.experiments import pairs as reading
    from firstfault_tools.experiments.kinds import Kind

    known = guard(lambda: reading.read_routes(read_text(routes), routes)) if routes else reading.Routes()  # fmt: skip
    figures: tuple[Any, ...] = ()
    if not options["command"]:
        figures = guard(lambda: reading.read_figures(read_text(source), source))
        names = tuple(sorted({h for f in figures for h in (f.a, f.b)}))
    else:
        names = read_hosts(source)
        if options["fails_below"] is None or not options["figure"]:
            raise UsageError("measuring pairs needs --figure PATTERN and --fails-below LIMIT")
    guard(lambda: reading.check_nodes(names))
    options["noise"] = max(options["noise"], reading.NOISE)
    conduct(
        Kind.PAIRS, "pairs across it are slow, all others are not", names, options,
        default="one host, switch or port makes pairs slow", routes=known, measured=figures,
    )  # fmt: skip


@COMMAND.command("commits")
@click.option("--good", required=True, help="A commit that works, an ancestor of the bad one.")
@click.option("--bad", default="HEAD", show_default=True, help="A commit that fails.")
@click.option("--repository", default=".", type=click.Path(exists=True, file_okay=False))
@_trials
def commits(good: str, bad: str, repository: str, **options: Any) -> None:
    """Which commit made COMMAND fail? Run in a checkout of its own for each; yours is not touched."""
    from firstfault_tools.experiments.commits import Repository
    from firstfault_tools.experiments.kinds import Kind

    found = Repository(Path(repository).resolve())
    listed = guard(lambda: found.list_between(good, bad))
    conduct(
        Kind.COMMITS, "it and every later one fail, every earlier one works", listed, options,
        default=f"one of {len(listed) - 1} commits after {good} made it fail", what="commit",
        source={"repository": str(found.folder)},
    )  # fmt: skip


@COMMAND.command("settings")
@click.argument("good", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("bad", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_trials
def settings(good: Path, bad: Path, **options: Any) -> None:
    """Which differences of two configurations make COMMAND {config} fail? Delta debugging."""
    from firstfault.experiments.preparation import compare_files
    from firstfault_tools.experiments.kinds import Kind

    found = guard(lambda: compare_files(good, bad))
    names = tuple(d.name for d in found.differences)
    conduct(
        Kind.SETTINGS, "the good configuration with these differences fails, and with any one less works", names, options,
        default=f"some of {len(names)} differences make it fail",
        source={"good": str(good.resolve()), "bad": str(bad.resolve())},
    )  # fmt: skip


@COMMAND.command("component")
@click.option(
    "--write",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Write the file that your script imports, and stop.",
)
@click.option(
    "--read",
    "records",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Read what runs recorded, run nothing.",
)
@click.option("--variants", default="", help="Which, by commas; baseline is always one.")
@click.option(
    "--repeat",
    type=click.IntRange(1, 100),
    default=2,
    show_default=True,
    help="Trials of each variant.",
)
@click.option("--ranks", type=int, help="Ranks of {ranks} in the command; one fewer is tried, too.")
@_trials  # fmt: skip
def component(
    folder: Path | None, records: tuple[Path, ...], variants: str, repeat: int, ranks: int | None, **options: Any
) -> None:  # fmt: skip
    """Which part of your own step carries the time or the fault? COMMAND runs once as it is, once without each."""
    from firstfault_tools.experiments import component as parts
    from firstfault_tools.experiments.kinds import Kind

    if folder is not None:
        _write_kit(folder)
        return
    if records:
        _read_components(records, options["as_json"])
    chosen = [v.strip() for v in variants.split(",") if v.strip()]
    if unknown := [v for v in chosen if v not in parts.VARIANTS]:
        raise UsageError(f"--variants: no {unknown[0]!r}; there are {', '.join(parts.VARIANTS)}")
    names = tuple(v for v in parts.VARIANTS if v == parts.BASELINE or not chosen or v in chosen)
    if not ranks:
        names = tuple(v for v in names if v != "one_rank_fewer")
    elif not any("{ranks}" in part for part in options["command"]):
        raise UsageError("--ranks: the command must hold {ranks}")
    options["most_trials"] = repeat * len(names)
    conduct(
        Kind.COMPONENT, "the step is shorter, or the fault is gone, without the part that carries it", names, options,
        default="one part of the step carries the time or the fault", source={"ranks": str(ranks)} if ranks else {},
    )  # fmt: skip


def _write_kit(folder: Path) -> None:
    from importlib.resources import files

    name = "firstfault_component.py"
    if (folder / name).exists():
        raise UsageError(
            f"{folder / name} is there already; it is kept. Remove it to have it written again"
        )
    text = files("firstfault_tools.experiments.kit").joinpath(name).read_text(encoding="utf-8")
    (folder / name).write_text(text, encoding="utf-8")
    click.echo(str(folder / name))
    show_below("in your script: import firstfault_component as component; loader = component.watch(loader)")  # fmt: skip


def _read_components(paths: Sequence[Path], as_json: bool) -> None:
    from dataclasses import asdict

    from firstfault_tools.experiments import component as parts

    steps: list[StepRecord] = []
    for path in paths:
        steps += _read_component(path)
    effects = parts.compare_variants(steps)
    if not effects:
        raise CannotAnalyse(
            "nothing can be compared: there must be steps of the baseline and of another variant"
        )
    if as_json:
        click.echo(write_json({"schema": "firstfault.component_effects/1", "effects": [asdict(e) for e in effects]}))  # fmt: skip
    else:
        for effect in effects:
            click.echo(f"{'CARRIES' if effect.carries else '   -   '}  {show_line(effect.says)}")
    sys.exit(1 if effects[0].carries else 0)


def _read_component(path: Path) -> list[StepRecord]:
    from firstfault_tools.experiments.component import read_folder, read_steps

    if path.is_dir():
        return read_folder(path)
    return guard(lambda: read_steps(read_text(str(path)), path.name))


# ---- what is on record


@COMMAND.command("list")
@click.option("--incident", help="Of one incident only.")
@click.option("--json", "as_json", is_flag=True)
def list_(incident: str | None, as_json: bool) -> None:
    """Experiments on record, last changed first."""
    from firstfault.experiments.outcome import say_stored
    from firstfault.service import open_service

    with open_service(workers=False) as service:
        found = service.record.experiments.list(incident)
    if as_json:
        rows = [{"id": e.id, "incident": e.incident, "says": say_stored(e)} for e in found]
        click.echo(write_json(rows))
    else:
        for one in found:
            click.echo(show_line(say_stored(one)))
        if not found:
            click.echo("No experiments yet.")


@COMMAND.command("show")
@click.argument("experiment")
@click.option("--json", "as_json", is_flag=True, help="The record, as an incident takes it.")
def show(experiment: str, as_json: bool) -> None:
    """One experiment with its trials."""
    from firstfault.service import open_service

    with open_service(workers=False) as service:
        print_stored(service.record.experiments.get(experiment), as_json)


@COMMAND.command("resume")
@click.argument("experiment")
@click.option("--yes", is_flag=True, help="Do not ask before the first trial.")
@click.option("--incident", help="The incident that it is to settle from now on.")
@click.option("--json", "as_json", is_flag=True)
def resume(experiment: str, yes: bool, incident: str | None, as_json: bool) -> None:
    """Go on behind the last trial that ended, or tell an incident of a result."""
    from firstfault.service import open_service

    with open_service(workers=False) as service:
        stored = service.record.experiments.get(experiment)
        if incident is not None:
            service.incident(incident)
            service.record.experiments.attach(experiment, incident)
        if stored.result is None:
            confirm(stored.design, yes)
        go_on(service, experiment, as_json)
