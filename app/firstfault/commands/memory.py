"""`firstfault memory`: will it fit, where is the peak, which one change helps, what broke?"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from firstfault.errors import InputUnreadable, UsageError
from firstfault_tools.errors import InvalidParameter, ToolError

HELP = """Will this training step fit, in which phase does it peak, and which one change helps?

\b
CONFIG files: Hugging Face config.json, Megatron arguments or a log with their dump, DeepSpeed JSON,
torchtitan TOML, Accelerate or NeMo YAML; '-' reads standard input. Later files and flags win. A file
that holds a CUDA out-of-memory message gets its books closed as well.

\b
Examples:
  firstfault memory --model llama-3-8b --sequence 8192 --precision bf16 --card H100-80GB
  firstfault memory config.json ds_config.json --world 8 --sequence 4096
  firstfault memory train.log --card H100-80GB
  firstfault memory --check measured.jsonl --json

Exit codes: 0 answered, 2 a value breaks a rule, 3 input unreadable.
"""
MAX_BYTES = 64 * 1024 * 1024
_SIZES = (
    ("hidden", "model width"), ("layers", "layers"), ("heads", "attention heads"),
    ("kv-heads", "key-value heads"), ("head-dim", "width of one head"), ("ffn", "MLP width"),
    ("vocab", "vocabulary"), ("experts", "routed experts"),
    ("experts-per-token", "experts a token uses"), ("expert-ffn", "width of one expert"),
    ("sequence", "tokens a sequence"), ("micro-batch", "sequences a micro-batch"),
    ("micro-batches", "micro-batches a step"), ("global-batch", "sequences a step, all ranks"),
    ("world", "GPUs of the job"), ("tensor", "tensor parallelism"),
    ("pipeline", "pipeline parallelism"), ("virtual", "model chunks a pipeline stage"),
    ("first-stage-layers", "layers of the first stage"), ("last-stage-layers", "of the last"),
    ("context", "context parallelism"), ("expert", "expert parallelism"),
    ("expert-tensor", "tensor parallelism of experts"), ("lora-rank", "LoRA rank"),
    ("quantized-bits", "4 or 8: quantised frozen base"),
    ("text-tokens", "text tokens beside a diffusion transformer's latents"),
    ("image-patches", "patches of a sequence's images, before they are merged"),
    ("fp8-bytes", "1 or 2: of an input that fp8 matmuls keep"),
)  # fmt: skip
_MAY_BE_ZERO = frozenset(
    {"ffn", "experts", "expert_ffn", "lora_rank", "quantized_bits", "fp8_bytes"}
)
_WORDS = (
    ("framework", "huggingface, torchtitan, megatron, deepspeed"),
    ("precision", "fp32, amp, fp16_amp, bf16, fp16, bf16_master, fp8, mxfp8, nvfp4"),
    ("attention", "eager, sdpa, flash"),
    ("recompute", "none, selective, full"),
    ("sharding", "none, ddp, zero1, zero2, zero3, fsdp"),
    ("optimizer", "adamw_fused, adamw_foreach, adamw_8bit, sgd, lion, ..."),
    ("norm", "rms, layer"),
    ("lora-targets", "all-linear or q_proj,v_proj,..."),
)
_FLAGS = (
    ("tied", "input and output embeddings share a matrix"),
    ("gated", "gated MLP (three matrices)"),
    ("sequence-parallel", "Megatron sequence parallelism"),
    ("distributed-optimizer", "Megatron distributed optimizer"),
    ("loss-fused", "fused or chunked cross-entropy"),
    ("dropout", "hidden dropout above zero"),
    ("offload-optimizer", "optimizer states in host memory"),
    ("offload-parameters", "weights in host memory as well (ZeRO-3)"),
    ("activation-offload", "activations in host memory"),
    ("compiled", "layers under torch.compile"),
    ("loss-eager", "the loss is not compiled with the layers"),
    ("experts-loop", "every expert has modules of its own (transformers 4)"),
    ("low-weights", "weights stand in fp8 or fp4 alone"),
    ("host-pinned", "offloaded states in pinned memory"),
    ("tower-frozen", "the vision tower is not trained"),
    ("prediction", "the layers for multi-token prediction are trained too"),
    ("resume", "count loading a checkpoint as a phase"),
)


def _read(path: str) -> str:
    if path == "-":
        return sys.stdin.buffer.read(MAX_BYTES).decode("utf-8", errors="replace")
    try:
        with Path(path).open("rb") as stream:
            return stream.read(MAX_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        raise InputUnreadable(f"{path}: {error.strerror or error}") from error


def _console() -> Any:
    from rich.console import Console

    terminal = sys.stdout.isatty()
    return Console(highlight=False, width=None if terminal else 140)


def _show_table(console: Any, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table, or nothing where it has no rows."""
    from rich.table import Table

    if rows:
        table = Table(*heads)
        for row in rows:
            table.add_row(*row, style="bold" if row[0] == _SUM else None)
        console.print(table)


_SUM = "together"
_ANSWERS = {"fits": "Fits: ", "tight": "Tight: ", "does not fit": "Does not fit: "}
NARROW, NUMBERS = 110, 4
"""Columns below which a table with words in it cannot be read, and how many of its columns are name and numbers."""


def _show_wide_table(console: Any, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table whose last columns are words: below NARROW columns these stand under each row."""
    if console.width >= NARROW:
        _show_table(console, heads, rows)
        return
    if rows:
        console.print(f"{heads[0].capitalize()}:", style="bold")
    for row in rows:
        told = zip(heads[1:NUMBERS], row[1:NUMBERS], strict=True)
        console.print(f"{row[0]}: {', '.join(f'{head} {cell}' for head, cell in told if cell)}")
        words = [f"{h}: {c}" for h, c in zip(heads[NUMBERS:], row[NUMBERS:], strict=True) if c]
        if words:
            console.print(f"    {'; '.join(words)}", style="dim")
    if rows:
        console.print()


def show_memory(result: Mapping[str, Any]) -> None:
    """The estimate as tables on standard output."""
    console = _console()
    card = result["card"]
    answer = _ANSWERS.get(str(result["fit"]), "")
    console.print(f"{answer}{result['sentence']}", style="bold")
    console.print(f"{result['parameters']:,} parameters; {result['precision_means']}")
    if result["calibration"]:
        seen = result["calibration"]
        console.print(
            f"calibrated to {seen['observed_peak_gib']} GiB: dynamic terms x "
            f"{seen['dynamic_factor']:.3f}"
            + ("" if seen["plausible"] else " (implausible: is this the same configuration?)")
        )
    parts = [(row["name"], f"{row['gib']:.2f}") for row in result["breakdown"]]
    parts.append((_SUM, f"{result['needed_gib']['expected']:.2f}"))
    _show_table(console, ("part of the expected need", "GiB"), parts)
    for name, size in result["host_gib"].items():
        console.print(f"host memory a rank: {name} {size:.2f} GiB")
    _show_table(
        console,
        ("phase", "stage", "GiB"),
        [(p["phase"], str(p["stage"]), f"{p['total_gib']:.2f}") for p in result["phases"]],
    )
    _show_table(
        console,
        ("phase of the step", "GiB", "of it"),
        [
            (
                phase,
                f"{sum(terms.values()):.2f}",
                ", ".join(f"{name} {size:.2f}" for name, size in terms.items() if size >= 0.005),
            )
            for phase, terms in (result["rollout_gib"] or {}).items()
        ],
    )
    _show_wide_table(
        console,
        ("single change", "saves GiB", "needs GiB", "fits", "why", "cost", "side effects"),
        [
            (
                row["change"], f"{row['saved_gib']:+.2f}", f"{row['needed_gib']:.2f}",
                ("yes" if row["fits"] else "no") if card else "",
                row["reason"], row["cost"], row["side_effects"],
            )
            for row in result["changes"] or ()
        ],
    )  # fmt: skip
    _show_wide_table(
        console,
        ("one after the other", "saves GiB", "then needs GiB", "fits", "cost", "flag"),
        [
            (
                f"{number}. {row['change']}", f"{row['saved_gib']:.2f}", f"{row['needed_gib']:.2f}",
                "yes" if row["fits"] else "no", row["cost"], row["flag"],
            )
            for number, row in enumerate(result["plan"] or (), 1)
        ],
    )  # fmt: skip
    for line in result["assumptions"]:
        console.print(f"assumed: {line}")


def show_oom(result: Mapping[str, Any]) -> None:
    """The closed books of a message."""
    from rich.table import Table

    console = _console()
    books, message = result["books"], result["message"]
    where = "" if message["gpu"] is None else f" on GPU {message['gpu']}"
    console.print(f"asked for {message['tried_gib']:.2f} GiB{where}", style="bold")
    console.print(f"what broke: {books['bucket'].replace('_', ' ')}: {books['reason']}")
    console.print(books["fix"])
    table = Table("bucket", "GiB")
    for key in (
        "allocated_gib", "fragmentation_gib", "context_nccl_gib", "other_processes_gib",
        "free_gib", "unexplained_gib", "capacity_gib",
    ):  # fmt: skip
        if books[key] is not None:
            table.add_row(key.removesuffix("_gib").replace("_", " "), f"{books[key]:.2f}")
    console.print(table)
    for match in result["tensor"]:
        sure = "is" if match["exact"] else "may be"
        console.print(f"the request {sure} {match['name']} = {match['formula']}")
    if result["configuration_problem"]:
        console.print(f"no estimate: {result['configuration_problem']}")


def show_check(result: Mapping[str, Any]) -> None:
    """Predicted against measured, a row each."""
    from rich.table import Table

    table = Table("row", "predicted GiB", "measured GiB", "error %")
    for row in result["rows"]:
        cells = [
            "" if value is None else form.format(value)
            for value, form in (
                (row["predicted_gib"], "{:.3f}"),
                (row["measured_gib"], "{:.3f}"),
                (None if row["error"] is None else 100 * row["error"], "{:+.2f}"),
            )
        ]
        table.add_row(row.get("label") or f"not read: {row['problem']}", *cells)
    console = _console()
    console.print(table)
    if result["rows_measured"]:
        console.print(
            f"mean {100 * result['mean_error']:.2f} %, worst {100 * result['worst_error']:.2f} % "
            f"over {result['rows_measured']} measured rows"
        )


def _check(path: str, as_json: bool) -> None:
    from firstfault_tools.memory.check import read_rows, score_rows

    result = score_rows(read_rows(_read(path), path))
    if as_json:
        click.echo(json.dumps(result))
    else:
        show_check(result)


def _check_fields(configs: Sequence[str], model: str | None, fields: Mapping[str, Any]) -> None:
    """Say what is missing or impossible before a default takes its place."""
    for name, _ in _SIZES:
        key = name.replace("-", "_")
        least = 0 if key in _MAY_BE_ZERO else 1
        if (value := fields.get(key)) is not None and value < least:
            raise UsageError(f"--{name}: must be at least {least}, got {value}")
    if not configs and model is None and fields.get("hidden") is None:
        raise UsageError(
            "of which model? Give --model llama-3-8b, a config.json or a log with its arguments, "
            "or --hidden, --layers, --heads and --vocab"
        )


def _estimate(
    configs: Sequence[str], fields: Mapping[str, Any], model: str | None, card: str | None,
    observed: float | None, as_json: bool, changes: bool,
) -> None:  # fmt: skip
    from firstfault_tools.memory.cards import find_card
    from firstfault_tools.memory.configuration import Draft, build_run
    from firstfault_tools.memory.configuration_files import read_configuration
    from firstfault_tools.memory.models import find_model
    from firstfault_tools.memory.oom_message import find_messages
    from firstfault_tools.memory.oom_report import explain_oom
    from firstfault_tools.memory.report import report_memory, split_fields

    texts = [(path, _read(path)) for path in configs]
    failed = [(path, text) for path, text in texts if find_messages(text, 1)]
    if failed:
        path, text = failed[0]
        others = [other for other in texts if other[0] != path]
        result = explain_oom(
            text,
            configuration=others[0][1] if others else None,
            configuration_name=others[0][0] if others else "configuration",
            fields=fields,
            capacity_gib=find_card(card).total_gib if card else None,
            model=model,
        )
        if as_json:
            click.echo(json.dumps(result))
            return
        show_oom(result)
        if result["estimate"]:
            show_memory(result["estimate"])  # type: ignore[arg-type]
        return
    draft = find_model(model) if model else Draft()
    for path, text in texts:
        draft = draft.merge(read_configuration(text, Path(path).name))
    run = build_run(draft.merge(split_fields(fields)))
    answer = report_memory(
        run, find_card(card) if card else None, observed_peak_gib=observed, changes=changes
    )
    if as_json:
        click.echo(json.dumps(answer))
    else:
        show_memory(answer)


def _run(
    configs: tuple[str, ...], check: str | None, as_json: bool, model: str | None,
    card: str | None, observed_peak_gib: float | None, changes: bool, **fields: Any,
) -> None:  # fmt: skip
    try:
        if check:
            _check(check, as_json)
        else:
            _check_fields(configs, model, fields)
            _estimate(configs, fields, model, card, observed_peak_gib, as_json, changes)
    except InvalidParameter as error:
        raise UsageError(str(error)) from error
    except ToolError as error:
        raise InputUnreadable(str(error)) from error


def _options() -> list[click.Parameter]:
    options: list[click.Parameter] = [
        click.Argument(["configs"], nargs=-1),
        click.Option(["--check"], help="score rows of measured steps, one JSON object a line"),
        click.Option(["--json", "as_json"], is_flag=True, help="one JSON object on stdout"),
        click.Option(["--model"], help="a model known by name: llama-3-8b, mixtral-8x7b, gpt2-xl"),
        click.Option(["--card"], help="GPU model, or its capacity in GiB"),
        click.Option(["--observed-peak-gib"], type=float, help="recalibrate to one seen peak"),
        click.Option(["--changes/--no-changes"], default=True, help="rank single changes"),
        click.Option(["--imbalance"], type=float, help="worst expert's load over the mean"),
    ]
    options += [click.Option([f"--{name}"], type=int, help=text) for name, text in _SIZES]
    options += [click.Option([f"--{name}"], help=text) for name, text in _WORDS]
    options += [
        click.Option([f"--{name}/--no-{name}"], default=None, help=text) for name, text in _FLAGS
    ]
    return options


COMMAND = click.Command("memory", callback=_run, params=_options(), help=HELP)
