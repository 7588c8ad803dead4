"""`firstfault preflight`: may this run start, or grow? The checklist, ticked where a tool can."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from firstfault.errors import InputUnreadable, UsageError
from firstfault.plain_text import show_line, write_json
from firstfault_tools.errors import InvalidParameter, ToolError

if TYPE_CHECKING:
    from firstfault_tools.preflight.checks import Given
    from firstfault_tools.preflight.items import Answer

SCHEMA = "firstfault.preflight/1"
LARGEST = 64 * 1024 * 1024
HELP = """May this run start? Goes through the checklist and ticks what the tools can answer.

FILES: probe records, nccl-tests tables, `nvidia-smi -q`, kernel logs, `pip freeze` of the nodes.
What was not given stays open, with what brings it. Nothing is changed and nothing is executed.

\b
Examples:
  firstfault preflight --config args.txt --card H100-80GB --store /ckpt probe-*.jsonl
  firstfault preflight node1-pip.txt node2-pip.txt --items ours.yaml
  firstfault preflight --gpus 64 --grow-to 128 --pipeline 4 --global-batch 1024

\b
Own items (--items), in YAML; the checks only look:
  items:
    - {id: scratch, text: Scratch has room., free_gib: /scratch, at_least: 500}
    - {id: token, text: The tracker's key is set., variable: WANDB_API_KEY}
    - {id: files, text: Open files are enough., limit: nofile, at_least: 65536}
    - {id: index, text: The index is built., exists: /data/index.bin}
    - {id: call, text: Someone is on call.}

Exit codes: 0 nothing failed, 1 an item failed, 2 usage, 3 unreadable.
"""


@click.command("preflight", help=HELP)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The run's configuration or arguments.",
)
@click.option("--model", default=None, help="A model known by name, instead of a configuration.")
@click.option("--card", default=None, help="GPU model (H100-80GB, ...) or GiB.")
@click.option(
    "--set",
    "fields",
    multiple=True,
    metavar="NAME=VALUE",
    help="A field of `firstfault memory`, as sequence=8192.",
)
@click.option("--store", type=click.Path(path_type=Path), help="Folder where checkpoints go.")
@click.option(
    "--load",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Checkpoint folder to load.",
)
@click.option(
    "--items",
    "own",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Your own items.",
)
@click.option("--gpus", type=click.IntRange(1), help="GPUs of the job.")
@click.option("--grow-to", type=click.IntRange(1), help="GPUs after growing: the scaling-up list.")
@click.option("--tensor", type=click.IntRange(1), default=1)
@click.option("--pipeline", type=click.IntRange(1), default=1)
@click.option("--context", type=click.IntRange(1), default=1)
@click.option("--micro-batch", type=click.IntRange(1), default=1)
@click.option("--global-batch", type=click.IntRange(1))
@click.option("--save-seconds", type=click.FloatRange(0.001), help="Longest pause for a save.")
@click.option("--step-seconds", type=click.FloatRange(0.001), help="Usual length of a step.")
@click.option(
    "--fabric-gbs", type=click.FloatRange(0.001), help="GB/s one way of a node's network."
)
@click.option("--learning-rate", type=float)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def preflight(files: tuple[Path, ...], own: tuple[Path, ...], as_json: bool, **options: Any) -> None:  # fmt: skip
    from firstfault_tools.metrics.checklist import CheckState
    from firstfault_tools.preflight.checks import run_preflight, summarise

    growing = options["grow_to"] is not None
    if growing and options["gpus"] is None:
        raise UsageError("--grow-to needs --gpus, the number of GPUs now")
    try:
        if growing:
            answers = _scale(options)
        else:
            answers = list(run_preflight(_gather(files, options)))
        for path in own:
            answers += _answer_own(path)
    except InvalidParameter as error:
        raise UsageError(str(error)) from error
    except ToolError as error:
        raise InputUnreadable(str(error)) from error
    said = summarise(answers)
    if as_json:
        click.echo(write_json({"schema": SCHEMA, "answer": said, "items": [_row(a) for a in answers]}))  # fmt: skip
    else:
        click.echo(said + "\n")
        for a in answers:
            click.echo(show_line(f"{a.state.value:>8}  {a.text}"))
            if a.reason:
                page = f" [page {a.page}]" if a.page and a.state is CheckState.FAILED else ""
                click.echo(show_line(f"          {a.reason}{page}"))
    sys.exit(1 if any(a.state is CheckState.FAILED for a in answers) else 0)


def _row(a: Answer) -> dict[str, Any]:
    return {"id": a.id, "text": a.text, "state": a.state.value, "reason": a.reason, "page": a.page}


def _gather(files: tuple[Path, ...], options: dict[str, Any]) -> Given:
    """What was given, read: the files also through every reader that knows them."""
    from firstfault.commands.checkpoint import list_folder
    from firstfault_tools.preflight.checks import Given
    from firstfault_tools.preflight.plans import Planned

    findings, kinds = _examine(files)
    config: Path | None = options["config"]
    settings = dict(_parse_field(text) for text in options["fields"])
    if options["model"]:
        settings["model"] = options["model"]
    return Given(
        configuration=None if config is None else (config.name, _read(config)),
        card=options["card"],
        settings=settings,
        files=tuple((path.name, _read(path)) for path in files),
        findings=findings,
        kinds=kinds,
        store=options["store"],
        load=None if options["load"] is None else list_folder(options["load"]),
        planned=Planned(
            options["gpus"], options["save_seconds"], options["step_seconds"], options["fabric_gbs"]
        ),
    )


def _examine(files: tuple[Path, ...]) -> tuple[tuple[Any, ...], frozenset[str]]:
    if not files:
        return (), frozenset()
    from firstfault.intake.collect import collect_paths
    from firstfault.investigation.examination import examine
    from firstfault.workspace import Workspace

    workspace = Workspace()
    collection = collect_paths(files, workspace.spool)
    found = examine(collection.artefacts, workspace.knowledge.signatures)
    return tuple(found.findings), frozenset(found.readings)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(LARGEST).decode("utf-8", errors="replace")
    except OSError as error:
        raise InputUnreadable(f"{path}: {error.strerror or error}") from error


def _parse_field(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise UsageError(f"--set {text!r}: write NAME=VALUE, as sequence=8192")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _scale(options: dict[str, Any]) -> list[Answer]:
    from firstfault_tools.metrics.checklist import CheckState, checklist_items
    from firstfault_tools.preflight.items import Answer
    from firstfault_tools.preflight.scaling import run_scaling

    names = ("gpus", "tensor", "pipeline", "context", "micro_batch", "global_batch", "save_seconds", "learning_rate")  # fmt: skip
    found = run_scaling(gpus_after=options["grow_to"], **{name: options[name] for name in names})
    told = {row["id"]: str(row["answer"]) for row in found["items"]}  # type: ignore[index, union-attr, call-overload]
    return [
        Answer(item.id, item.text, CheckState.MANUAL, told.get(item.id, ""), item.page)
        for item in checklist_items()
        if item.phase == "scaling_up"
    ]


def _answer_own(path: Path) -> list[Answer]:
    from firstfault_tools.preflight.items import answer_own, load_own_items

    return [answer_own(entry) for entry in load_own_items(_read(path), path.name)]


COMMAND = preflight
