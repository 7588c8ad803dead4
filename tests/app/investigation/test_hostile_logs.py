"""Whatever is thrown at the diagnosis, no exception escapes and the answer keeps its schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from evals.cases import load_cases
from evals.diagnosed import Diagnoses
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.growth import compare_cpu
from tests.rows import each_row

from firstfault.errors import FirstfaultError
from firstfault.investigation import diagnosis as diagnosis_module
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.workspace import Workspace

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads(Path(diagnosis_module.__file__).with_name("diagnosis.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
FILES = sorted((ROOT / "evals" / "cases" / "dev").rglob("log.txt"), key=lambda p: p.parent.name)
LOGS = st.sampled_from(FILES).map(Path.read_bytes)
WORKSPACE = Workspace()


def check(data: bytes) -> None:
    try:
        diagnosis = WORKSPACE.diagnose_text("log.txt", data)
    except FirstfaultError:
        return  # a refusal with a message is an answer too
    check_schema(diagnosis)


def check_schema(diagnosis: Diagnosis) -> None:
    row = diagnosis.to_json()
    VALIDATOR.validate(json.loads(json.dumps(row)))
    numbers = {c["n"] for c in row["citations"]}
    for fix in row["fixes"]:
        assert set(fix["citations"]) <= numbers
    for hypothesis in row["hypotheses"]:
        assert {*hypothesis["for"], *hypothesis["against"]} <= numbers


RELAXED = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@RELAXED
@given(st.binary(max_size=3000))
def test_random_bytes(data: bytes) -> None:
    check(data)


@RELAXED
@given(LOGS, st.floats(0, 1), st.floats(0, 1))
def test_truncated_logs(log: bytes, start: float, end: float) -> None:
    check(log[int(len(log) * min(start, end)) : int(len(log) * max(start, end)) + 1])


@RELAXED
@given(st.lists(LOGS, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_spliced_and_shuffled_logs(logs: list[bytes], random: object) -> None:
    lines = [line for log in logs for line in log.split(b"\n")[:60]]
    random.shuffle(lines)  # type: ignore[attr-defined]
    check(b"\n".join(lines))


@pytest.mark.xdist_group("cases")
@pytest.mark.timeout(1200)
def test_every_case_validates(diagnoses: Diagnoses) -> None:
    wrong: list[str] = []
    for case in load_cases():
        try:
            check_schema(diagnoses.of(case).diagnosis)
        except (AssertionError, jsonschema.ValidationError) as error:
            wrong.append(f"{case.id}: {error}")
    assert wrong == [], "\n".join(wrong)


@each_row(
    "data",
    [
        b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x02id\x94\x85\x94R\x94.",
        b"A" * 5_000_000,
        b"[rank0]: " * 200_000,
        b"{" * 50_000,
        b'{"log":' * 5_000,
        b"Traceback (most recent call last):\n" * 5_000,
        b"\x1b[" * 50_000,
        "\u202e\u0000\ufeff RuntimeError: \ud7ff".encode(),
        b"\xff\xfe" + "RuntimeError: CUDA error: out of memory\n".encode("utf-16-le"),
    ],
    ids=[
        "pickle",
        "one-long-line",
        "prefixes",
        "braces",
        "json",
        "tracebacks",
        "escapes",
        "bidi",
        "utf16",
    ],
)
def test_hostile_shapes(data: bytes) -> None:
    check(data)


def test_a_run_of_nuls_does_not_hide_the_log() -> None:
    data = (
        b"\0" * 20_000
        + b"\n[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    diagnosis = WORKSPACE.diagnose_text("train.log", data)
    assert (diagnosis.category, diagnosis.first_failing_rank) == ("oom", 2)
    assert diagnosis.input.skipped == ()


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
BROKEN_ONCE = {
    "one of two ranks that say the same has no stamp": (
        f"2026-05-01 08:41:10.118 [rank3]: {OOM}\n[rank11]: {OOM}\nworld_size: 64\n"
    ),
}
"""What `python -m evals.fuzz` found, in the fewest lines that show it."""


@pytest.mark.parametrize("what", BROKEN_ONCE)
def test_what_once_broke_a_diagnosis(what: str) -> None:
    check(BROKEN_ONCE[what].encode())


def test_a_name_does_not_grow_with_the_line() -> None:
    """The words before a number that is none were read again for every number: 12 CPU seconds for 7 KB."""
    line = "iter 1200 | loss 5.1 | 82.1 img/s | gpu mem " + "NaN \\" * 12_000
    numbers = f"{line}\n{line}\n".encode()
    words = ("iter 1200 | loss 5.1 | " + "word \\" * 10_000 + "\n").encode()
    assert compare_cpu(lambda: check(numbers), lambda: check(words)) < 30
