"""What does a TensorBoard event file say? Scalars by tag, read with the tensorboard package."""

from __future__ import annotations

from collections.abc import Iterator

from firstfault_tools.errors import HostileArtefact, UnreadableArtefact
from firstfault_tools.findings import Finding, Json
from firstfault_tools.metrics.sources.table import Row, judge_rows
from firstfault_tools.registry import Artefact, Reader, Reading
from firstfault_tools.roles import Role

LIMIT = 1024 * 1024 * 1024
MAX_EVENTS = 2_000_000


def _recognise(name: str, head: bytes) -> bool:
    return "tfevents" in name.rsplit("/", 1)[-1] or b"brain.Event:" in head[:64]


def event_rows(path: str) -> Iterator[Row]:
    """One row a step: all scalars that were written for it. Raises what tensorboard raises."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    from tensorboard.util import tensor_util

    steps: dict[int, dict[str, float]] = {}
    times: dict[int, float] = {}
    for count, event in enumerate(LegacyEventFileLoader(path).Load()):
        if count >= MAX_EVENTS:
            break
        for value in event.summary.value:
            kind = value.WhichOneof("value")
            if kind == "simple_value":
                number = float(value.simple_value)
            elif kind == "tensor" and not value.tensor.tensor_shape.dim:
                try:
                    number = float(tensor_util.make_ndarray(value.tensor))
                except (TypeError, ValueError):
                    continue
            else:
                continue
            steps.setdefault(event.step, {})[value.tag] = number
            times.setdefault(event.step, event.wall_time)
    for step in sorted(steps):
        shown = ", ".join(f"{tag}={value:.6g}" for tag, value in list(steps[step].items())[:12])
        yield Row(
            values=steps[step],
            line=0,
            text=f"step {step}: {shown}"[:600],
            step=step,
            time=times[step],
        )


def _read(artefacts: tuple[Artefact, ...]) -> Reading:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    findings: list[Finding] = []
    files: list[Json] = []
    for artefact in artefacts:
        if artefact.path.stat().st_size > LIMIT:
            raise HostileArtefact(
                f"{artefact.name}: larger than 1 GiB; give the last event file only"
            )
        try:
            found, summary = judge_rows(event_rows(str(artefact.path)), artefact.name)
        except (OSError, ValueError, IndexError, KeyError, TypeError, DecodeError) as error:
            raise UnreadableArtefact(
                f"{artefact.name}: not a TensorBoard event file ({error})"
            ) from error
        findings += found
        files.append(summary)
    return Reading(tuple(findings), {"event_files": files})


SIGNS = ("name:tfevents", "brain.Event:")

READER = Reader(
    name="tfevents",
    summary="Scalars of a TensorBoard event file",
    recognise=_recognise,
    read=_read,
    role=Role.RUN,
)
