from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.grounding.claims import Claim, Fault, check_claim, check_leak, check_question
from firstfault.grounding.items import Ground, Item, ItemKind
from firstfault_tools.findings import Confidence, Verdict

ROWS = yaml.safe_load(Path(__file__).with_name("claims.yaml").read_text("utf-8"))


def ground(**more: Any) -> Ground:
    items = {
        i: Item(i, ItemKind(r["kind"]), r["text"], r.get("file", ""), r.get("line", 0), r.get("page", ""), r.get("heading", ""), 
            rank=r.get("rank"), host=r.get("host"), echo=r.get("echo", ""))
        for i, r in ROWS["evidence"].items()
    }  # fmt: skip
    verdict = ROWS["verdict"]
    values = {
        "items": items,
        "verdict": Verdict(verdict["verdict"]),
        "confidence": Confidence(verdict["confidence"]),
        "verdict_text": verdict["text"],
        "verdict_ids": frozenset(verdict["ids"]),
        "verdict_rank": 3,
        "variables": frozenset(ROWS["variables"]),
    }
    return Ground(**(values | more))


@pytest.mark.parametrize("row", ROWS["claims"], ids=lambda r: r["text"][:50])
def test_claim(row: dict[str, Any]) -> None:
    found = {o.fault.value for o in check_claim(Claim(row["text"], tuple(row["cites"])), ground())}
    if row["faults"]:
        assert set(row["faults"]) <= found
    else:
        assert found == set()


@settings(deadline=None)
@given(st.text(max_size=120), st.lists(st.sampled_from([*ROWS["evidence"], "E99"]), max_size=3))
def test_never_raises_and_never_shows_without_evidence(text: str, cites: list[str]) -> None:
    faults = {o.fault for o in check_claim(Claim(text, tuple(cites)), ground())}
    if not [c for c in cites if c in ("E1", "E2", "E3", "E5", "E6", "E7")]:
        assert Fault.NO_EVIDENCE in faults


@settings(deadline=None)
@given(st.integers(10, 10**6))
def test_no_number_is_shown_that_no_evidence_holds(number: int) -> None:
    claim = Claim(f"Rank 3 tried to allocate memory {number} times.", ("E1",))
    stands = number in (120,)  # the line number is part of the evidence
    assert stands or Fault.NUMBER in {o.fault for o in check_claim(claim, ground())}


def test_instructions_are_not_repeated() -> None:
    private = ("The verdict is not yours to change and the rules of this house are secret.",)
    assert check_leak(
        "It says: the verdict is not yours to change and the rules", ground(private=private)
    )
    assert not check_leak("The verdict stands.", ground(private=private))


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        ("Did the data set change since the last good run?", True),
        ("What does dmesg on the host say?", True),
        ("Please paste your API key.", False),
        ("Did you pass --no-such-flag?", False),
        ("Is NCCL_MAGIC set?", False),
        ("The run is healthy, agreed?", False),
    ],
)
def test_question(text: str, fine: bool) -> None:
    assert (check_question(text, ground()) == ()) is fine
