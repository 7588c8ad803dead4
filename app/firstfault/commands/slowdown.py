"""`firstfault slowdown`: what does a slow rank, host or stage cost, and what is the cheapest remedy?"""

from __future__ import annotations

import sys
from typing import IO, Any

import click

from firstfault.errors import CannotAnalyse, UsageError
from firstfault.plain_text import show_line, write_json
from firstfault_tools.errors import InvalidParameter, ToolError

LARGEST = 64 * 1024 * 1024
HELP = """What does a slow rank, host or pipeline stage cost, and what is the cheapest thing to do?

FILES tell the times of every rank: a table or one line a rank, Megatron's timers of all ranks, a
torch.profiler trace a rank, or NCCL or RCCL Inspector records; '-' reads stdin.

\b
Examples:
  firstfault slowdown timers.log --gpus 512 --hours-left 72 --price 2.5
  firstfault slowdown trace_rank_*.json.gz --gpus 64 --micro-batches 16
  firstfault slowdown inspector/*.log --gpus 256 --price 2.5
  firstfault slowdown --stages 30,30,39,30 --micro-batches 32 --gpus 256

Exit codes: 0 nothing to gain, 1 something costs, 2 usage, 3 unreadable, 4 no times in it.
"""


@click.command("slowdown", help=HELP)
@click.argument("files", type=click.File("rb"), nargs=-1)
@click.option("--stages", help="Milliseconds of one micro-batch on each stage, comma-separated.")
@click.option("--schedule", type=click.Choice(["gpipe", "1f1b", "interleaved", "zb-h1"]), default="1f1b")  # fmt: skip
@click.option("--micro-batches", type=click.IntRange(1), help="Of each rank and step.")
@click.option("--gpus", type=click.IntRange(1), help="Of the whole job.")
@click.option("--hours-left", type=float, default=24.0, show_default=True)
@click.option("--restart-minutes", type=float, default=15.0, show_default=True)
@click.option("--unsaved-minutes", type=float, default=0.0, help="Work since the last checkpoint.")
@click.option("--swap-minutes", type=float, default=0.0, help="Until another node is at hand.")
@click.option("--price", type=float, help="Of one GPU-hour.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def slowdown(
    files: tuple[IO[bytes], ...], stages: str | None, as_json: bool, **options: Any
) -> None:
    from firstfault_tools.slowdown.slowdown_calculator import run_slowdown

    given: dict[str, Any] = {
        "price_per_gpu_hour": options.pop("price"),
        "micro_batches": options.pop("micro_batches") or 0,
        **options,
    }
    try:
        if stages is not None:
            given["stage_ms"] = [float(part) for part in stages.split(",")]
        elif files:
            given["log"] = [(file.name, file.read(LARGEST)) for file in files]
        else:
            raise UsageError("give FILES with times by rank, or --stages")
        result = run_slowdown(**given)
    except ValueError as error:
        raise UsageError(f"--stages {stages!r}: numbers separated by commas") from error
    except InvalidParameter as error:
        if files and stages is None:
            raise CannotAnalyse(str(error)) from error
        raise UsageError(str(error)) from error
    except ToolError as error:
        raise CannotAnalyse(str(error)) from error
    if as_json:
        click.echo(write_json(result))
    else:
        for line in write_lines(result):
            click.echo(show_line(line))
    sys.exit(1 if result["losses"] else 0)


def write_lines(result: Any) -> list[str]:
    """Plain text: the answer, then every suspect with its remedies and their arithmetic."""
    lines = [result["sentence"], ""]
    for row in result["losses"]:
        money = "" if row["cost_per_day"] is None else f", {row['cost_per_day']:,.0f} a day"
        lines.append(
            f"{row['suspect']}: {row['step_ms']:g} ms -> {row['step_without_ms']:g} ms without, "
            f"{row['gpu_h_per_day']:g} GPU-hours a day{money}"
        )
        lines += [
            f"  {option['gpu_h']:>10,.1f} GPU-h  {option['remedy']}: {option['arithmetic']}"
            for option in row["remedies"]
        ]
    lines += ["", *(f"assumed: {text}" for text in result["assumptions"])]
    return lines


COMMAND = slowdown
