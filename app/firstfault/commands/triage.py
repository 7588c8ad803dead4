"""`firstfault triage`: what a running or just-dead job still shows, captured in order and diagnosed."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from firstfault.commands.diagnose import EXIT_CODES
from firstfault.errors import CannotAnalyse, FirstfaultError, UsageError
from firstfault.plain_text import show_line, write_json
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter, ToolError
from firstfault_tools.findings import Verdict
from firstfault_tools.triage.steps import Manager, Scope, Step, select_steps

if TYPE_CHECKING:
    from firstfault.investigation.diagnosis import Diagnosis
    from firstfault_tools.triage.capture import Capture
    from firstfault_tools.triage.transports import Transport

SCHEMA = "firstfault.triage/1"
HELP = """Capture what a running or just-dead job still shows, and diagnose it. Only reads.

\b
Examples:
  firstfault triage                            this node
  firstfault triage --plan                     what would be run, in order; runs nothing
  firstfault triage --slurm 4711               every node of a Slurm job, by srun --overlap
  firstfault triage --kubectl app=pretrain -n train
  firstfault triage --ssh gpu-a17,gpu-a18 --checkpoints /data/ckpt

Each command is shown before it runs. The capture is a folder for its owner alone, secrets are
redacted. It opens as an incident (`firstfault incidents`, the page) unless --no-record is given;
`firstfault diagnose FOLDER/captured` reads it again.

Exit codes: 0 nothing wrong, 1 a fault or warning was found, 2 usage, 3 unreadable,
4 could not analyse or not enough evidence.
"""
MOST_NAMED = 20
QUIET_S = 120.0
"""Seconds without a line of any rank from which on a run is taken to stand still: long for a step, and
well below the 600 s of NCCL's watchdog (c10d kProcessGroupNCCLDefaultTimeout)."""


@dataclass(frozen=True, slots=True)
class Target:
    """The job: how its hosts are reached, and which they are. hosts: empty where its manager must be asked."""

    transport: Transport
    hosts: tuple[str, ...]
    job: str = ""
    selector: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be captured, where, and how."""

    target: Target
    steps: tuple[Step, ...]
    options: Mapping[str, Any]


def prepare_capture(arguments: Sequence[str]) -> Job:
    """What `firstfault triage ARGUMENTS` would capture. Raises UsageError, click.UsageError."""
    return _choose_job(COMMAND.make_context("triage", list(arguments)).params)


def take_capture(job: Job) -> Path:
    """Capture it; the folder. Raises CannotAnalyse, UsageError."""
    return _capture(job)[1]


def _show(text: str) -> None:
    click.echo(show_line(text), err=True)


@click.command("triage", help=HELP)
@click.option("--slurm", metavar="JOBID", help="A Slurm job.")
@click.option(
    "--kubectl", metavar="SELECTOR", help="Pods: a label selector (a=b) or names (p-0,p-1)."
)
@click.option("--ssh", metavar="HOSTS", help="Hosts by ssh, comma-separated.")
@click.option(
    "--hosts", metavar="NODES", help="Nodes of the Slurm job, where Slurm cannot be asked."
)
@click.option("--namespace", "-n", default="", help="Namespace of the pods.")
@click.option("--container", "-c", default="", help="Container, where a pod has several.")
@click.option("--match", default="", help="Part of the command line of the training processes.")
@click.option("--world", type=click.IntRange(1, 1 << 20), help="Ranks the job should have.")
@click.option("--checkpoints", metavar="FOLDER", help="Folder of the checkpoints, on the hosts.")
@click.option("--only", default="", help="Comma-separated names of steps to take alone.")
@click.option("--skip", default="", help="Comma-separated names of steps to leave out.")
@click.option("--limit", "limit_s", type=click.FloatRange(1), default=300.0, show_default=True,
              help="Seconds for the whole capture.")  # fmt: skip
@click.option("--parallel", type=click.IntRange(1, 256), default=16, show_default=True,
              help="Hosts asked at the same time.")  # fmt: skip
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder to write; must not be there yet."
)
@click.option("--question", default="", help="What you want to know.")
@click.option("--no-record", is_flag=True, help="Diagnose the capture, and open no incident.")
@click.option("--plan", "plan_only", is_flag=True, help="Print the commands in order, run nothing.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object (firstfault.triage/1)."
)
def COMMAND(plan_only: bool, as_json: bool, only: str, skip: str, **options: Any) -> None:
    """Plan or capture."""
    job = _choose_job({**options, "only": only, "skip": skip})
    if plan_only:
        planned = _plan_json if as_json else _plan_text
        click.echo(planned(job.target, job.steps, job.options))
        return
    capture, folder, redacted = _capture(job)
    question = options["question"] or _complain(capture)
    incident, diagnosis = _open_incident(folder, question, options["no_record"])
    doubts = _doubt(capture, diagnosis)
    shown = None if doubts else diagnosis
    if as_json:
        record = _record(capture, folder, redacted)
        click.echo(
            write_json(
                {
                    **record,
                    "incident": incident,
                    "doubts": doubts,
                    "diagnosis": shown.to_json() if shown else None,
                }
            )
        )
    else:
        click.echo("\n".join(_say(capture, folder)))
        if incident is not None:
            click.echo(f"incident {incident}")
        if doubts:
            click.echo(
                f"\nNOT ENOUGH EVIDENCE: no fault stands in what was read, but {'; '.join(doubts)}"
            )
        elif shown is not None:
            from firstfault.ui.terminal import render

            click.echo()
            render(shown)
    sys.exit(EXIT_CODES[shown.verdict] if shown else 4)


def _choose_job(options: Mapping[str, Any]) -> Job:
    try:
        target = _choose_target(options)
        steps = select_steps(target.transport.manager, _names(options["only"]), _names(options["skip"]))  # fmt: skip
    except InvalidParameter as error:
        raise UsageError(f"--{error}") from error
    return Job(target, steps, options)


def _complain(capture: Capture) -> str:
    """What an engineer would say of ranks that live and are silent."""
    quiet = capture.quiet_s
    if quiet is None or quiet < QUIET_S:
        return ""
    return f"The run hangs: its processes live, and no rank has written for {quiet:.0f} seconds."


def _doubt(capture: Capture, diagnosis: Diagnosis | None) -> list[str]:
    """Why a capture without a fault proves no health: who did not answer was not found healthy."""
    if diagnosis is None:
        return ["nothing was captured that a diagnosis reads"]
    if diagnosis.verdict is not Verdict.HEALTHY:
        return []
    doubts = []
    if not capture.is_whole:
        doubts.append("hosts or ranks are missing")
    if capture.quiet_s is None:
        doubts.append("nothing shows that a rank still writes")
    elif capture.quiet_s >= QUIET_S:
        doubts.append(f"no rank has written for {capture.quiet_s:.0f} s")
    return doubts


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _choose_target(options: Mapping[str, Any]) -> Target:
    from firstfault_tools.triage.transports import KubectlExec, Local, Srun, Ssh, check_name

    chosen = [name for name in ("slurm", "kubectl", "ssh") if options[name] is not None]
    if len(chosen) > 1:
        raise click.UsageError(f"--{' and --'.join(chosen)} are different jobs; name one")
    if options["hosts"] and chosen != ["slurm"]:
        raise click.UsageError("--hosts names the nodes of --slurm; for hosts alone use --ssh")
    if not chosen:
        return Target(Local(), (os.uname().nodename,))
    text = options["hosts"] if chosen == ["slurm"] else options[chosen[0]]
    names = tuple(dict.fromkeys(n.strip() for n in (text or "").split(",") if n.strip()))
    if chosen == ["slurm"]:
        job = check_name(options["slurm"])
        return Target(Srun(job), tuple(map(check_name, names)), job=job)
    if not names:
        raise click.UsageError(f"--{chosen[0]} names nothing; is a variable of your shell unset?")
    if chosen == ["ssh"]:
        return Target(Ssh(), tuple(map(check_name, names)))
    namespace, container = options["namespace"], options["container"]
    more = (
        "--request-timeout=15s",
        *((f"--namespace={check_name(namespace)}",) if namespace else ()),
    )
    transport = KubectlExec(namespace, container)
    if "=" in text or "!" in text or " in " in text:
        return Target(transport, (), selector=text, options=more)
    return Target(transport, tuple(map(check_name, names)), options=more)


def _find_hosts(target: Target) -> Target:
    from dataclasses import replace

    from firstfault_tools.triage.discovery import find_nodes, find_pods

    if target.hosts:
        return target
    if target.job:
        return replace(target, hosts=find_nodes(target.job, _show))
    return replace(target, hosts=find_pods(target.selector, target.options, _show))


def _fields(target: Target, options: Mapping[str, Any]) -> dict[str, str]:
    return {
        "job": target.job,
        "options": "\0".join(target.options),
        "checkpoints": options["checkpoints"] or "",
    }


# ---- the plan


def _planned(
    target: Target, steps: Iterable[Step], options: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Rows in the order in which they run; what is only known on the host stands as {host}, {pid}, {logs}."""
    from firstfault_tools.triage.capture import IDENTITY, IDENTITY_S, LIST_S
    from firstfault_tools.triage.processes import (
        LISTS,
        ask_environment,
        ask_outputs,
        ask_times,
    )

    local = target.transport.manager is Manager.LOCAL
    rows = [
        ("hosts", "the hosts of the job", "", Scope.JOB, argv, 20.0, "")
        for argv in _ask_hosts(target)
    ]
    rows += [
        ("identity", "does the host answer, and as whom", "a wrong or silent host is named", Scope.HOST, IDENTITY, IDENTITY_S, ""),
        ("processes", "the training processes", "ranks that are gone are named", Scope.HOST, LISTS[0], LIST_S, ""),
        ("processes", "their rank and settings", "secrets are redacted; of other variables only the name is kept", Scope.HOST, ask_environment(["{pid}"]), LIST_S, ""),
        ("processes", "age of their logs and dumps", "silence is a hang; a dump older than its rank is another job's", Scope.HOST, ask_times(["{logs}", "{dump}"]), LIST_S, ""),
        ("processes", "where they write", "a pipe is never read", Scope.HOST, ask_outputs(["{pid}"]), LIST_S, ""),
    ]  # fmt: skip
    known = {k: v for k, v in _fields(target, options).items() if v}
    fields = {k: f"{{{k}}}" for k in ("host", "pid", "rank", "logs", "dump")} | known
    ordered = sorted(steps, key=lambda s: s.scope is not Scope.JOB)
    out = []
    for id_, what, why, scope, argv, limit_s, source in rows:
        out.append(_row(target, local, id_, what, why, scope, [argv], limit_s, "", source, ""))
    for step in ordered:
        commands = step.fill({"checkpoints": "", **fields})
        needs = step.needs
        if commands:
            out.append(
                _row(target, local, step.id, step.what, step.why, step.scope, commands, step.limit_s,
                     needs, step.source, step.reads)
            )  # fmt: skip
    jobs_first = [row for row in out if row["id"] == "hosts" or row["scope"] == "job"]
    return jobs_first + [row for row in out if row not in jobs_first]


def _ask_hosts(target: Target) -> list[tuple[str, ...]]:
    from firstfault_tools.triage.discovery import ask_names, ask_nodes, ask_pods

    if target.hosts:
        return []
    if target.job:
        return [*ask_nodes(target.job), ask_names("{nodes}")]
    return [ask_pods(target.selector, target.options)]


def _row(
    target: Target, local: bool, id_: str, what: str, why: str, scope: Scope, commands: Iterable[tuple[str, ...]],
    limit_s: float, needs: str, source: str, reads: str,
) -> dict[str, Any]:  # fmt: skip
    remote = not local and scope in (Scope.HOST, Scope.PROCESS, Scope.ANY)
    name = "HOST"
    argvs = [
        [
            ("{host}" if part == name else part)
            for part in target.transport.wrap(name, argv, limit_s)
        ]
        if remote
        else list(argv)
        for argv in commands
    ]
    return {
        "id": id_, "what": what, "why": why, "scope": scope.value, "commands": argvs, "limit_s": limit_s,
        "reads": reads, "needs": needs, "source": source,
    }  # fmt: skip


def _plan_json(target: Target, steps: Iterable[Step], options: Mapping[str, Any]) -> str:
    return write_json(
        {
            "schema": SCHEMA, "kind": "plan", "manager": target.transport.manager.value,
            "hosts": list(target.hosts), "limit_s": options["limit_s"], "parallel": options["parallel"],
            "steps": _planned(target, steps, options),
        }
    )  # fmt: skip


def _plan_text(target: Target, steps: Iterable[Step], options: Mapping[str, Any]) -> str:
    times = {
        "job": "once", "target": "for every pod, from here", "host": "on every host",
        "process": "for every rank, on its host", "any": "on one host",
    }  # fmt: skip
    where = ", ".join(target.hosts[:MOST_NAMED]) or "those that the first commands name"
    lines = [f"# hosts: {where}; {options['limit_s']:g} s for the whole; nothing was run"]
    for number, row in enumerate(_planned(target, steps, options), start=1):
        lines.append("")
        lines.append(
            f"# {number}. {row['id']}: {row['what']} ({times[row['scope']]}, {row['limit_s']:g} s)"
        )
        if row["why"]:
            lines.append(f"#    {row['why']}")
        if row["needs"]:
            lines.append(f"#    needs {row['needs']}")
        for at, argv in enumerate(row["commands"]):
            lines.append(f"{'# or: ' if at else ''}{shlex.join(argv)}")
    return "\n".join(lines)


# ---- the capture


def _capture(job: Job) -> tuple[Capture, Path, Mapping[str, int]]:
    from firstfault_tools.triage.bundle import Bundle
    from firstfault_tools.triage.capture import Capturing, Plan

    steps, options = job.steps, job.options
    try:
        target = _find_hosts(job.target)
    except InvalidParameter as error:
        raise UsageError(f"--{error}") from error
    except ToolError as error:
        raise CannotAnalyse(str(error)) from error
    folder = options["out"] or Path(f"triage-{time.strftime('%Y%m%dT%H%M%S')}")
    try:
        bundle = Bundle(folder)
    except FileExistsError as error:
        raise UsageError(f"{folder}: is there already; name another folder with --out") from error
    except OSError as error:
        raise CannotAnalyse(
            f"{folder}: cannot be made ({error.strerror}); name one with --out"
        ) from error
    plan = Plan(
        steps, target.hosts, options["limit_s"], options["parallel"], options["match"],
        options["world"], _fields(target, options),
    )  # fmt: skip
    capture = Capturing(plan, target.transport, bundle, _show).run()
    bundle.write_record(_record(capture, folder, bundle.redacted))
    return capture, folder, bundle.redacted


def _open_incident(
    folder: Path, question: str, unrecorded: bool
) -> tuple[str | None, Diagnosis | None]:
    """The capture as an incident on record, diagnosed; diagnosed alone where nothing can be put on record."""
    captured = folder / "captured"
    if not any(captured.rglob("*.*")):
        return None, None
    if unrecorded:
        return None, _diagnose(captured, question)
    from firstfault.experiments.outcome import settle
    from firstfault.service import NamedPath, NewIncident, open_service

    try:
        with open_service(workers=False) as service:
            title = f"Triage {time.strftime('%Y-%m-%d %H:%M')}"
            incident = service.start(NewIncident((NamedPath(captured),), question, title))
            settle(service, incident)
            diagnosis = service.diagnosis(incident)
            if diagnosis is None:
                raise CannotAnalyse(f"incident {incident} has no diagnosis; it is in the page")
            return incident, diagnosis
    except FirstfaultError as error:
        # a node may have no home to write to: the capture is worth its diagnosis all the same
        _show(f"firstfault: no incident was opened ({error})")
        return None, _diagnose(captured, question)


def _diagnose(captured: Path, question: str) -> Diagnosis:
    from firstfault.commands.diagnose import _open_spool
    from firstfault.workspace import Workspace

    with _open_spool() as spool:
        return Workspace(spool=spool).diagnose_paths([captured], question)


def _record(capture: Capture, folder: Path, redacted: Mapping[str, int]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": "capture",
        "folder": str(folder),
        "elapsed_s": capture.elapsed_s,
        "stopped": capture.stopped,
        "hosts": [{"asked": asked, "answered": name} for asked, name in capture.answered.items()],
        "missing_hosts": [{"host": h, "why": why} for h, why in capture.missing_hosts.items()],
        "world_size": capture.world,
        "missing_ranks": list(capture.missing_ranks),
        "ranks": [
            {"rank": r.rank, "host": r.host, "pid": r.pid, "logs": list(r.logs), "log_age_s": r.log_age_s} for r in capture.ranks
        ],
        "last_lines": [
            {"rank": r.rank, "host": r.host, "pid": r.pid, "step": r.step, "text": r.text}
            for r in capture.last_lines
        ],
        "notes": list(capture.notes),
        "redactions": dict(redacted),
        "steps": [
            {
                "id": o.step, "host": o.host or None, "rank": o.rank, "pid": o.pid,
                "command": o.command, "state": o.state.value, "exit_code": o.exit_code,
                "elapsed_s": o.elapsed_s, "file": o.file or None, "reason": o.reason,
            }
            for o in capture.outcomes
        ],
    }  # fmt: skip


def _say(capture: Capture, folder: Path) -> Iterable[str]:
    asked = len(capture.answered) + len(capture.missing_hosts)
    seen = len({rank.rank for rank in capture.ranks if rank.rank is not None})
    of = f" of {capture.world}" if capture.world else ""
    yield f"captured in {capture.elapsed_s:g} s: {len(capture.answered)} of {asked} hosts, {seen}{of} ranks"
    yield f"folder   {show_line(str(folder))}"
    for host, why in list(capture.missing_hosts.items())[:MOST_NAMED]:
        yield f"missing  host {show_line(host)}: {show_line(why)}"
    if (more := len(capture.missing_hosts) - MOST_NAMED) > 0:
        yield f"missing  and {more} more hosts (triage.json)"
    if capture.missing_ranks:
        yield f"missing  rank {_ranges(capture.missing_ranks)}: no process of it was found"
    if capture.quiet_s is not None:
        yield f"written  {capture.quiet_s:.0f} s ago by the rank that wrote last"
    for note in capture.notes[:MOST_NAMED]:
        yield f"note     {show_line(note)}"
    for last in capture.last_lines[:MOST_NAMED]:
        who = f"rank {last.rank}" if last.rank is not None else f"pid {last.pid}"
        step = f"step {last.step}" if last.step is not None else "no step"
        yield f"last     {who} on {show_line(last.host)}: {step}: {show_line(last.text)}"
    # of the commands of one step in one place the last one tried counts
    last_tried = {(o.step, o.host, o.rank, o.pid): o for o in capture.outcomes}
    failed: dict[tuple[str, str], list[str]] = {}
    for outcome in last_tried.values():
        if outcome.state.value != "ok" and outcome.step != "identity":
            failed.setdefault((outcome.step, outcome.reason), []).append(outcome.host or "here")
    for (step, reason), hosts in failed.items():
        on = show_line(hosts[0]) + (f" and {len(hosts) - 1} more" if len(hosts) > 1 else "")
        yield f"without  {step} ({on}): {show_line(reason)}"


def _ranges(numbers: Iterable[int]) -> str:
    """`0-3, 7`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans[:MOST_NAMED])
