"""`firstfault checkpoint`: how big, how often, and is this folder whole?"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from firstfault.errors import InputUnreadable, UsageError
from firstfault_tools.errors import InvalidParameter, ToolError
from firstfault_tools.expressions import expression

_COUNT = expression(r"(\d+(?:\.\d+)?(?:[eE]\d{1,2})?)\s*([kKmMbBtT]?)")
_THOUSANDS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
MAX_BYTES = 256 * 1024 * 1024
TRACKER_BYTES = 4096


def _read_count(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """A number of parameters as people write it: 8030261248, 8e9, 8B, 1.5T."""
    if value is None:
        return None
    match = _COUNT.fullmatch(value.replace("_", "").replace(",", ""))
    if match is None:
        said = f"{value!r} is no number of parameters; write 8e9, 8B or 8030261248"
        raise click.BadParameter(said, ctx, param)
    scale = _THOUSANDS[match[2].lower()]
    return int(match[1]) * scale if match[1].isdecimal() else round(float(match[1]) * scale)


def _answer(
    run: Callable[..., Mapping[str, Any]], as_json: bool, **given: Any
) -> Mapping[str, Any]:
    try:
        result = run(**{name: value for name, value in given.items() if value is not None})
    except InvalidParameter as error:
        raise UsageError(str(error)) from error
    except ToolError as error:
        raise InputUnreadable(str(error)) from error
    click.echo(json.dumps(result) if as_json else write_result(result))
    return result


def write_result(result: Mapping[str, Any]) -> str:
    """A result as lines for a terminal."""
    if "checkpoints" in result:
        return _write_folder(result)
    rows = [
        f"{name:<24} {value}" for name, value in result.items()
        if name not in ("schema", "sentence", "assumptions") and value is not None
    ]  # fmt: skip
    assumed = [f"assumed: {line}" for line in result.get("assumptions", ())]
    return "\n".join([result["sentence"], *rows, *assumed])


def _write_folder(result: Mapping[str, Any]) -> str:
    said = result["sentence"]
    lines = [said]
    lines += [f"PROBLEM {problem}" for problem in result["problems"] if problem[1:] not in said]
    tracker = result["tracker"]
    if tracker:
        lines.append(f"tracker {tracker['path']}: {tracker['status']}")
    for saved in result["checkpoints"]:
        split = ", ".join(f"{axis} {size}" for axis, size in saved["parallelism"].items())
        size = "" if saved["size_gb"] is None else f", {saved['size_gb']:.2f} GB"
        lines.append(
            f"{saved['name']}: {saved['state']}, {saved['format']}, {saved['files']} files{size}"
            + (f", saved with {split}" if split else "")
        )
        lines += [f"  wrong: {problem}" for problem in saved["problems"]]
        lines += [f"  open: {question}" for question in saved["open_questions"]]
        if saved["must_convert"]:
            lines.append("  does not load with the wanted parallel sizes as it is")
        if saved["resharding"]:
            lines.append(f"  {saved['resharding']}")
    return "\n".join(lines)


@click.group("checkpoint", help="How big is a checkpoint, how often to save, is a folder whole?")
def checkpoint() -> None:
    """Subcommands below."""


@checkpoint.command("size")
@click.option(
    "--parameters", metavar="COUNT", callback=_read_count, help="of the whole model: 8e9, 8B"
)
@click.option("--model", help="a known model instead: llama-3-8b")
@click.option(
    "--content", default="mixed_adam", show_default=True,
    help="weights, mixed_adam, fp32_adam or fp32_weights",
)  # fmt: skip
@click.option("--bytes-per-parameter", type=float, help="instead of --content")
@click.option("--writers", type=int, default=1, show_default=True, help="ranks that write")
@click.option("--bandwidth-gbs", type=float, help="of the storage, 10^9 bytes a second")
@click.option("--per-writer-gbs", type=float, help="that one writer can push")
@click.option("--keep", type=int, default=1, show_default=True, help="checkpoints kept")
@click.option("--json", "as_json", is_flag=True, help="one JSON object on stdout")
def size(as_json: bool, **given: Any) -> None:
    """Size, per-rank share, write time, space of those kept."""
    from firstfault_tools.checkpoint.size_calculator import run_size

    _answer(run_size, as_json, **given)


@checkpoint.command("interval")
@click.option("--save-seconds", type=float, help="training stands still that long")
@click.option(
    "--log", "log_file", type=click.Path(), help="read the save time from this log instead"
)
@click.option("--mtbf-hours", type=float, help="mean time between failures of the job")
@click.option("--failures-per-gpu-hour", type=float, help="instead, with --gpus")
@click.option("--restart-seconds", type=float, default=600.0, show_default=True)
@click.option("--interval-seconds", type=float, help="set now, to be compared")
@click.option("--gpus", type=int, default=1, show_default=True)
@click.option("--price-per-gpu-hour", type=float)
@click.option("--step-seconds", type=float, help="to say the interval in steps")
@click.option("--json", "as_json", is_flag=True, help="one JSON object on stdout")
def interval(as_json: bool, log_file: str | None, **given: Any) -> None:
    """Optimal interval (Young, Daly), waste, cost of one incident."""
    if log_file:
        try:
            with Path(log_file).open("rb") as stream:
                given["log"] = stream.read(MAX_BYTES).decode("utf-8", errors="replace")
        except OSError as error:
            raise InputUnreadable(f"{log_file}: {error.strerror or error}") from error
    from firstfault_tools.checkpoint.interval_calculator import run_interval

    _answer(run_interval, as_json, **given)


@checkpoint.command("folder")
@click.argument("source")
@click.option("--tensor", type=int, help="tensor parallelism of the run that will load it")
@click.option("--pipeline", type=int)
@click.option("--expert", type=int)
@click.option("--data", type=int)
@click.option("--json", "as_json", is_flag=True, help="one JSON object on stdout")
def folder(source: str, as_json: bool, **wanted: Any) -> None:
    """Inspect SOURCE: a checkpoint folder, a file with its listing, or '-' for a listing on stdin.

    Exit codes: 0 no problem was found, 1 one was, 2 usage, 3 input unreadable.
    """
    from firstfault_tools.checkpoint.folder_calculator import run_folder

    contents: dict[str, str] = {}
    walked = False
    try:
        if source == "-":
            listing = sys.stdin.buffer.read(MAX_BYTES).decode("utf-8", errors="replace")
        elif Path(source).is_dir():
            listing, contents = list_folder(Path(source))
            walked = True
        else:
            with Path(source).open("rb") as stream:
                listing = stream.read(MAX_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        raise InputUnreadable(f"{source}: {error.strerror or error}") from error
    result = _answer(
        run_folder, as_json, listing=listing, contents=contents, hidden=walked, **wanted
    )
    sys.exit(1 if result["problems"] else 0)


def list_folder(root: Path) -> tuple[str, dict[str, str]]:
    """Names and sizes below a folder, and the text of its trackers. No checkpoint file is opened."""
    from firstfault_tools.checkpoint.folder import TRACKERS

    entries = []
    contents: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        if not path.is_file():
            continue
        name = path.relative_to(root).as_posix()
        entries.append({"path": name, "size": path.stat().st_size})
        if path.name in TRACKERS:
            with path.open("rb") as stream:
                contents[name] = stream.read(TRACKER_BYTES).decode("utf-8", errors="replace")
    return json.dumps(entries), contents


COMMAND = checkpoint
