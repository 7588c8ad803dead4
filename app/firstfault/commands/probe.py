"""`firstfault probe`: what can this node do, and which node is odd?"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from firstfault_tools.errors import InvalidParameter, ToolError

if TYPE_CHECKING:
    from firstfault_tools.findings import Finding
    from firstfault_tools.probe.merge import Comparison
    from firstfault_tools.probe.records import ProbeRecord

SCHEMA = "firstfault.probe/1"
HELP = """Measure this node: GPUs, links, memory, storage. Reads and measures, changes nothing.

\b
Examples:
  firstfault probe                          this node, all tests
  firstfault probe --only communication     one component alone
  firstfault probe kit .                    write the one-file kit
  firstfault probe plan srun --nodes 4      how to start it on many nodes
  firstfault probe merge probe-*.jsonl      which node is the odd one out

Exit codes: 0 nothing odd, 1 something odd was found, 2 usage, 3 unreadable, 4 could not run.
"""
MARKS = {"cause": "FAULT", "failure": "WARN ", "symptom": "sign ", "context": "note "}


def _show(text: str) -> None:
    click.echo(text, err=True)


def _finding_row(finding: Finding) -> Mapping[str, Any]:
    return {
        "kind": finding.kind,
        "title": finding.title,
        "level": finding.level.value,
        "category": finding.category.value if finding.category else None,
        "confidence": finding.confidence.value,
        "host": finding.host,
        "gpu": finding.gpu,
        "rank": finding.rank,
        "facts": dict(finding.facts),
        "evidence": [
            {"file": place.file, "line": place.line, "text": place.text}
            for place in finding.evidence
        ],
    }


def _finish(comparison: Comparison, records: Sequence[ProbeRecord], as_json: bool) -> int:
    bad = any(finding.level.value in ("cause", "failure") for finding in comparison.findings)
    if as_json:
        whole = {
            "schema": SCHEMA,
            "kind": "comparison",
            "hosts": list(comparison.hosts),
            "findings": [_finding_row(finding) for finding in comparison.findings],
            "rates": comparison.table,
            "records": [json.loads(record.text) for record in records],
        }
        click.echo(json.dumps(whole))
    else:
        click.echo(write_comparison(comparison, records))
    if bad:
        return 1
    # A node without a visible GPU was not found healthy: nothing was measured on it.
    return 4 if any(r.test == "health" and r.status == "unavailable" for r in records) else 0


def write_comparison(comparison: Comparison, records: Sequence[ProbeRecord]) -> str:
    """Findings, then the rates by place, then what was not available."""
    lines = [f"{MARKS.get(f.level.value, '     ')} {f.title}" for f in comparison.findings]
    if comparison.table:
        lines += ["", "rates"]
    for metric, row in comparison.table.items():
        lines.append(f"  {metric}")
        lines += [f"    {place:32} {value:>10g}" for place, value in row.items()]
    reasons = {
        f"{record.test}: {record.reason}"
        for record in records
        if record.status in ("unavailable", "refused") and record.reason
    }
    if reasons:
        lines += ["", "not measured", *(f"  {reason}" for reason in sorted(reasons))]
    return "\n".join(lines)


@click.group(help=HELP, invoke_without_command=True)
@click.option("--tests", help="Comma-separated names of tests; default: all.")
@click.option(
    "--only",
    type=click.Choice(["compute", "communication", "memory", "data"]),
    help="Test one component alone.",
)
@click.option("--light", is_flag=True, help="Read state only, put no load on the GPUs.")
@click.option("--gpus", help="Comma-separated GPU indices as nvidia-smi counts them.")
@click.option("--allow-busy", is_flag=True, help="Measure GPUs that are in use, too.")
@click.option("--data-path", type=click.Path(exists=True), help="Folder whose read rate counts.")
@click.option("--limit", "limit_s", default=150.0, show_default=True, help="Seconds for the whole.")
@click.option("--python", default=sys.executable, help="Interpreter that has the node's torch.")
@click.option("--out", type=click.Path(dir_okay=False), help="Keep the records in this file.")
@click.option("--show", is_flag=True, help="List tests and commands, run nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.pass_context
def probe(
    ctx: click.Context, /, limit_s: float, python: str, as_json: bool, **options: Any
) -> None:
    """Run the kit on this machine where no subcommand is named."""
    if ctx.invoked_subcommand is not None:
        return
    from firstfault_tools.probe.local import run_here
    from firstfault_tools.probe.merge import compare_nodes

    if limit_s <= 0:
        raise click.UsageError("--limit must be positive")
    arguments = _kit_arguments(options)
    if options["show"]:
        from firstfault_tools.probe.kit.main import main as run_kit

        sys.exit(run_kit([*arguments, "--show"]))
    try:
        run = run_here(arguments, limit_s, python=python, show=_show)
    except OSError as error:
        _show(f"firstfault: {python} cannot be started ({error.strerror}); name one with --python")
        sys.exit(4)
    if not run.records or (run.exit_code not in (0, 130)):
        _show("firstfault: the kit gave no records; its last words are above")
        sys.exit(2 if run.exit_code == 2 else 4)
    if run.stopped:
        _show("firstfault: the probe was stopped; what it had measured follows")
    sys.exit(_finish(compare_nodes(run.records), run.records, as_json))


def _kit_arguments(options: Mapping[str, Any]) -> list[str]:
    arguments: list[str] = []
    for name in ("tests", "only", "gpus", "data_path", "out"):
        if options[name]:
            arguments += [f"--{name.replace('_', '-')}", str(options[name])]
    return arguments + [f"--{n.replace('_', '-')}" for n in ("light", "allow_busy") if options[n]]


@probe.command("merge", help="Compare saved records of many nodes with each other.")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def merge(files: tuple[str, ...], as_json: bool) -> None:
    """Read, compare, say which one is odd."""
    from firstfault_tools.probe.merge import compare_nodes
    from firstfault_tools.probe.readings import read_records
    from firstfault_tools.registry import Artefact

    try:
        records = [
            record
            for name in files
            for record in read_records(Artefact(Path(name).name, Path(name)))
        ]
    except ToolError as error:
        _show(f"firstfault: {error}")
        sys.exit(3)
    sys.exit(_finish(compare_nodes(records), records, as_json))


@probe.command("kit", help="Write the one-file kit into a folder.")
@click.argument("folder", default=".", type=click.Path(exists=True, file_okay=False))
def write(folder: str) -> None:
    """Write the zipapp and say how to run it."""
    import hashlib

    from firstfault_tools.probe.build import write_kit

    try:
        path = write_kit(Path(folder))
    except OSError as error:
        raise click.UsageError(f"{folder}: the kit cannot be written ({error.strerror})") from error
    click.echo(f"{path}  sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}")
    _show(f"run it with a Python that has torch: python3 {path} --out probe-{{host}}.jsonl")


@probe.command("plan", help="Print how to start the kit on many nodes; runs nothing.")
@click.argument("launcher", type=click.Choice(["srun", "torchrun", "kubectl", "ssh"]))
@click.argument("names", nargs=-1)
@click.option("--nodes", "node_count", default=1, show_default=True, help="Number of nodes.")
@click.option("--gpus-per-node", default=8, show_default=True)
def plan(launcher: str, names: tuple[str, ...], node_count: int, gpus_per_node: int) -> None:
    """Texts for a person to copy."""
    from firstfault_tools.probe.launch import Launcher, plan_launch

    try:
        steps = plan_launch(
            Launcher(launcher), names, node_count=node_count, gpus_per_node=gpus_per_node
        )
    except InvalidParameter as error:
        raise click.UsageError(str(error)) from error
    click.echo("# Write the kit first: firstfault probe kit .")
    for step in steps:
        click.echo(f"# {step.why}\n{step.text}")


COMMAND = probe
