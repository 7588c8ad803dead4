"""Cases lie where their expectation says, and held ones are read only by who asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from evals.cases import CASES, Split, find_case, load_cases


def test_every_case_lies_in_the_folder_of_its_kind() -> None:
    found = {split: load_cases(split) for split in Split}
    wrong = [
        f"{case.id}: {case.inputs[0].parent} should be {case.expect.kind}/{case.id}"
        for case in found[Split.DEV]
        if case.inputs[0].parent != CASES / "dev" / case.expect.kind / case.id
    ]
    wrong += [
        f"{case.id}: named otherwise than its folder"
        for case in found[Split.HELD]
        if case.inputs[0].parent.name != case.id
    ]
    assert not wrong, "\n".join(wrong)
    ids = [case.id for cases in found.values() for case in cases]
    assert len(ids) == len(set(ids)) == len(list(CASES.rglob("case.yaml")))
    assert all(case.inputs and all(p.is_file() for p in case.inputs) for c in found.values() for case in c)  # fmt: skip


def test_loading_does_not_look_at_held_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Path.read_bytes

    def watch(path: Path) -> bytes:
        assert "held" not in path.relative_to(CASES).parts
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", watch)
    assert len(load_cases()) > 900
    with pytest.raises(AssertionError):
        load_cases(Split.HELD)


def test_a_case_is_found_by_its_id() -> None:
    assert find_case("lab-oom_one_rank") == CASES / "dev" / "oom" / "lab-oom_one_rank"
    with pytest.raises(LookupError):
        find_case("no-such-case")
