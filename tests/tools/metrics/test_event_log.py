"""A run's own log of events: kinds, times in every form, failures, and what is none."""

from __future__ import annotations

import json

import pytest
from tests.rows import each_row

from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.metrics.event_log import read_event_log

BEGIN = 1_795_947_000


@each_row(
    "row",
    [
        {"timestamp": BEGIN, "event_type": "checkpoint", "details": {}, "step": 3},
        {"time": BEGIN * 1000, "type": "checkpoint"},
        {"ts": "2026-11-29T10:10:00+00:00", "event": "checkpoint"},
        {"time_s": float(BEGIN), "kind": "checkpoint"},
    ],
)
def test_times_and_names(row: dict[str, object]) -> None:
    log = read_event_log(json.dumps(row) + "\nnot json\n{}\n", "events.jsonl")
    assert log.events == (("checkpoint", float(BEGIN)),)
    assert (log.failures, log.left_out) == ((), 2)


@each_row("kind", ["failure", "crash", "CUDA_OOM", "step_error", "killed"])
def test_failures(kind: str) -> None:
    log = read_event_log(json.dumps({"timestamp": BEGIN, "event_type": kind}), "events.jsonl")
    assert (log.events, log.failures) == ((), (float(BEGIN),))


@each_row("text", ["", "loss 3\n", '{"timestamp": 3}', '{"event_type": "a", "timestamp": true}'])
def test_what_is_no_event_log(text: str) -> None:
    with pytest.raises(UnreadableArtefact, match="event_type and timestamp"):
        read_event_log(text, "events.jsonl")
