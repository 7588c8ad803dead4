"""`firstfault bubble`: how much of a step is pipeline bubble, and what would shrink it?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from firstfault.errors import InputUnreadable
from firstfault_tools.errors import ToolError

MAX_BYTES = 64 * 1024 * 1024
TARGET = 0.1
"""Share of a step up to which a bubble is commonly put up with."""


def _numbers(_: click.Context, option: click.Parameter, value: str | None) -> Any:
    """A number, or a comma list of numbers for one value a stage."""
    if value is None:
        return None
    try:
        parts = [float(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"needs a number or a comma list, got {value!r}") from None
    return parts[0] if len(parts) == 1 and option.name != "stage_scale" else parts


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = ["  v    makespan  ratio to ideal  fraction of total  stage-0 activations"]
    lines += [
        f"{row['virtual']:>3} {row['makespan']:>11.4f} {row['ratio_to_ideal']:>15.5f} "
        f"{row['fraction_of_total']:>18.5f} {row['activation_factor']:>19.2f}x"
        for row in rows
    ]
    return "\n".join(lines)


def write_bubble(result: Mapping[str, Any]) -> str:
    """The answer and what to change first, then both ratios always together."""
    lines = [
        f"{100 * result['fraction_of_total']:.1f} % of the step is bubble.",
        *_say_change(result),
        f"{result['schedule']}: {result['stages']} stages, {result['microbatches']} micro-batches, "
        f"{result['virtual']} chunk(s) a stage",
        f"  ratio to ideal     {result['ratio_to_ideal']:.5f}   (T-I)/I",
        f"  fraction of total  {result['fraction_of_total']:.5f}   (T-I)/T",
        f"  makespan {result['makespan']:.4f}, ideal {result['ideal']:.4f} "
        f"(slowest stage alone {result['ideal_slowest_stage']:.4f})",
    ]
    loose = result["without_barrier"]
    if result["schedule"] in ("zb-h1", "zb-v"):
        lines.append(
            f"  without a barrier at the step's end: ratio {loose['ratio_to_ideal']:.5f}, "
            f"fraction {loose['fraction_of_total']:.5f}"
        )
    form = result["closed_form"]
    if form is not None:
        word = "exact here" if form["exact"] else "only an estimate here"
        lines.append(f"  closed form T-I = {form['formula']} = {form['idle']:.4f}, {word}")
    if "formula_computes" in result:
        lines.append(f"  that formula computes the {result['formula_computes']}")
    if "claimed_is" in result:
        lines.append(f"  the claimed number is: {result['claimed_is']}")
    need = result.get("microbatches_needed")
    if need is not None:
        if need["microbatches"] is None:
            lines.append(
                f"  no number of micro-batches reaches {need['target']:g}: the stages are unequal "
                f"and the fraction tends to {need['floor']:.5f}"
                if need["floor"] >= need["target"]
                else f"  {need['target']:g} needs more micro-batches than were searched"
            )
        else:
            lines.append(
                f"  at most {need['target']:g} of the total needs {need['microbatches']} "
                f"micro-batches ({need['fraction_of_total']:.5f})"
            )
    slow = result.get("slow_stage")
    if slow is not None:
        lines.append(
            f"  stage {slow['stage']} takes {slow['times_the_median']:.2f}x the median; against "
            f"balanced stages that costs {slow['cost']:.4f}, {slow['cost_share']:.1%} of the step"
        )
    seen = result.get("observed")
    if seen is not None:
        lines.append(
            f"  observed {seen['observed']:.4f}: compute {seen['compute_share']:.1%}, bubble "
            f"{seen['bubble_share']:.1%}, unexplained {seen['unexplained_share']:.1%}"
        )
    if "virtual_choices" in result:
        lines.append(_table(result["virtual_choices"]))
    return "\n".join(lines)


def _say_change(result: Mapping[str, Any]) -> list[str]:
    """What brings the bubble down to a tenth of the step, where it is more than that."""
    if result["fraction_of_total"] <= TARGET or result["schedule"] in ("zb-h1", "zb-v", "dualpipe"):
        return []
    need = result.get("microbatches_needed")
    if need is None or need["target"] != TARGET:
        # of p stages with m micro-batches about (p-1)/(m+p-1) is idle, which is TARGET at m = 9 (p-1)
        m = round((result["stages"] - 1) * (1 - TARGET) / TARGET / max(1, result["virtual"]))
        return [
            f"For {TARGET:.0%}: about {m} micro-batches a step, or more chunks a stage (--schedule interleaved --virtual 2)."
        ]
    if need["microbatches"] is None:
        return []
    return [f"For {TARGET:.0%}: {need['microbatches']} micro-batches a step."]


def _answer_run(
    log_file: str, step_ms: float | None, sizes: Mapping[str, int | str | None], as_json: bool
) -> None:
    from pathlib import Path

    from firstfault_tools.answers import answer_calculation
    from firstfault_tools.profile.trace import unpack

    try:
        with Path(log_file).open("rb") as stream:
            text = unpack(stream.read(MAX_BYTES), log_file).decode("utf-8", errors="replace")
        given = {name: value for name, value in sizes.items() if value is not None}
        answer = answer_calculation("bubble_run", {"log": text, "step_ms": step_ms, **given})
    except OSError as error:
        raise InputUnreadable(f"{log_file}: {error.strerror or error}") from error
    except ToolError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(answer.result))
        return
    click.echo(answer.sentence)
    rows: Any = answer.result["alternatives"]
    if rows:
        click.echo("schedule      m    v    saves ms  fraction  activations      GiB")
    for row in rows:
        click.echo(
            f"{row['schedule']:<12} {row['microbatches']:>3} {row['virtual']:>4} {row['saves_ms']:>11.1f} "
            f"{row['fraction_of_total']:>9.5f} {row['activations']:>11.2f}x {row.get('gib', '-'):>8}"
            + ("" if row.get("fits", True) else "  does not fit")
        )
    for line in answer.assumptions:
        click.echo(f"assumed: {line}")


@click.command("bubble")
@click.option(
    "--schedule",
    default="1f1b",
    show_default=True,
    help="gpipe, 1f1b, interleaved, zb-h1, zb-v or dualpipe",
)
@click.option("--stages", type=int, help="pipeline ranks")
@click.option("--microbatches", type=int, help="micro-batches a step")
@click.option(
    "--log",
    "log_file",
    type=click.Path(),
    help="take sizes and step time from a run's log, or a profile of one rank",
)
@click.option("--step-ms", type=float, help="step time, where the log tells none")
@click.option("--card", help="GPU model or GiB: schedules that do not fit are not advised")
@click.option("--virtual", type=int, default=None, help="model chunks a rank (interleaved)")
@click.option(
    "--forward",
    callback=_numbers,
    default="1",
    show_default=True,
    help="forward time; one value or one a stage",
)
@click.option(
    "--backward",
    callback=_numbers,
    default="2",
    show_default=True,
    help="full backward time, weight gradients included",
)
@click.option(
    "--weight",
    callback=_numbers,
    default=None,
    help="weight-gradient part of the backward; half of it by default",
)
@click.option("--stage-scale", callback=_numbers, default=None, help="a factor a stage: 1,1,1.3")
@click.option("--latency", type=float, default=0.0, show_default=True, help="one transfer")
@click.option("--recompute", is_flag=True, help="full activation recomputation")
@click.option(
    "--pair",
    type=float,
    default=1.0,
    show_default=True,
    help="dualpipe: overlapped forward+backward as a share of their sum",
)
@click.option("--at-most", type=float, default=None, help="micro-batches for this fraction")
@click.option("--observed", type=float, default=None, help="a measured step time, same unit")
@click.option("--claimed", type=float, default=None, help="a bubble number to be named")
@click.option("--formula", default=None, help="a bubble formula to be named or refused")
@click.option("--compare", is_flag=True, help="compare numbers of virtual stages")
@click.option("--gantt", is_flag=True, help="draw the schedule")
@click.option("--json", "as_json", is_flag=True, help="one JSON object on standard output")
def bubble(
    as_json: bool, log_file: str | None, step_ms: float | None, card: str | None, **parameters: Any
) -> None:
    """How much of a step is pipeline bubble, by exact simulation of the schedule.

    With --log: of the run's own step, in milliseconds, and what would save how much.
    """
    if log_file is not None:
        sizes = {name: parameters[name] for name in ("stages", "microbatches", "virtual")}
        sizes["card"] = card
        _answer_run(log_file, step_ms, sizes, as_json)
        return
    for name in ("stages", "microbatches"):
        if parameters[name] is None:
            raise click.UsageError(f"Missing option '--{name}' (or give --log)")
    from firstfault_tools.pipeline.calculator import calculate_bubble
    from firstfault_tools.pipeline.gantt import draw_gantt
    from firstfault_tools.pipeline.simulation import Task

    try:
        result = calculate_bubble(**parameters)
    except ToolError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(result))
        return
    click.echo(write_bubble(result))
    if parameters["gantt"]:
        bars: Any = result["gantt"]
        click.echo(draw_gantt([Task(**bar) for bar in bars]))


COMMAND = bubble
