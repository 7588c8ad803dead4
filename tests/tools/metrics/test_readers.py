"""Are trainer_state.json, tracker exports and TensorBoard event files read, bounded and quoted?"""

import json
import math
from pathlib import Path

import pytest

from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.metrics.sources import tfevents, tracker_export, trainer_state
from firstfault_tools.registry import Artefact, Reader, Reading, readers


def read(reader: Reader, path: Path) -> Reading:
    artefact = Artefact(path.name, path)
    assert reader.recognise(artefact.name, artefact.head())
    return reader.read((artefact,))


def history(count: int, bad: int) -> list[dict[str, float]]:
    rows: list[dict[str, float]] = []
    for i in range(1, count):
        loss = math.nan if i >= bad else 2.0 - i / 100
        rows.append(
            {"epoch": i / 10, "grad_norm": 1.0, "learning_rate": 1e-5, "loss": loss, "step": i}
        )
        if i % 10 == 0:
            rows.append({"epoch": i / 10, "eval_loss": 2.1, "step": i})
    return rows


@pytest.mark.parametrize("indent", [2, None])
def test_trainer_state(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text(
        json.dumps(
            {"best_metric": None, "log_history": history(40, 25), "max_steps": 100}, indent=indent
        )
    )
    reading = read(trainer_state.READER, path)
    found = next(f for f in reading.findings if f.kind == "metrics.nan_loss")
    assert found.facts["first_bad_step"] == 25
    lines = path.read_text().split("\n")
    for quoted in found.evidence:
        assert lines[quoted.line - 1].strip()[:600] == quoted.text
    if indent:
        assert any('"loss": NaN' in quoted.text for quoted in found.evidence)
    states = reading.data["trainer_states"]
    assert isinstance(states, list)
    assert states[0]["last_step"] == 39


def test_half_written_trainer_state(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text('{"log_history": [{"loss": 1.0, "step": 1}, {"lo')
    with pytest.raises(UnreadableArtefact, match="half-written"):
        read(trainer_state.READER, path)


def test_csv_export(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    body = ["Step,run-7 - train/loss,run-7 - train/loss__MIN,run-7 - lr"]
    body += [f"{i},{2 - i / 100 if i < 30 else 'NaN'},0,0.0001" for i in range(50)]
    path.write_text("\n".join(body) + "\n")
    found = read(tracker_export.READER, path).findings
    assert [(f.kind, f.facts["first_bad_step"]) for f in found] == [("metrics.nan_loss", 30)]
    assert found[0].evidence[1].line == 32
    assert found[0].evidence[1].text == "30,NaN,0,0.0001"


def test_other_tables_are_left_alone() -> None:
    assert not tracker_export.READER.recognise(
        "smi.csv", b"index, name, temperature.gpu\n0, H200, 36"
    )
    assert not tracker_export.READER.recognise("a.csv", b"")
    assert not trainer_state.READER.recognise("config.json", b'{"hidden_size": 4096}')


def test_event_file(tmp_path: Path) -> None:
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(tmp_path))
    for step in range(1, 60):
        loss = 1.0 if step < 30 else 7.0 + step % 3 / 10
        writer.add_event(
            event_pb2.Event(
                step=step,
                wall_time=1e9 + step,
                summary=summary_pb2.Summary(
                    value=[
                        summary_pb2.Summary.Value(
                            tag="train/loss", simple_value=loss + step % 2 / 50
                        ),
                        summary_pb2.Summary.Value(tag="train/learning_rate", simple_value=1e-4),
                    ]
                ),
            )
        )
    writer.close()
    path = next(tmp_path.glob("*tfevents*"))
    found = read(tfevents.READER, path).findings
    assert [f.kind for f in found] == ["metrics.divergence"]
    assert found[0].facts["first_high"] == "step 30"
    assert "train/loss=7" in " ".join(e.text for e in found[0].evidence)


def test_event_file_of_noise(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(bytes(range(256)) * 40)
    assert read(tfevents.READER, path).findings == ()


def test_readers_are_discovered() -> None:
    assert {"trainer_state", "tracker_export", "tfevents"} <= {r.name for r in readers()}
