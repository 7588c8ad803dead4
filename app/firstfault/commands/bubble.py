"""`firstfault bubble`: how much of a step is pipeline bubble, and what would shrink it?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from firstfault_tools.errors import ToolError


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
    """The result as text for a terminal; both ratios always together."""
    lines = [
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


@click.command("bubble")
@click.option(
    "--schedule",
    default="1f1b",
    show_default=True,
    help="gpipe, 1f1b, interleaved, zb-h1, zb-v or dualpipe",
)
@click.option("--stages", type=int, required=True, help="pipeline ranks")
@click.option("--microbatches", type=int, required=True, help="micro-batches a step")
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
def bubble(as_json: bool, **parameters: Any) -> None:
    """How much of a step is pipeline bubble, by exact simulation of the schedule."""
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
