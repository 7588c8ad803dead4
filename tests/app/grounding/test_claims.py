from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault.grounding.arithmetic import follows
from firstfault.grounding.claims import (
    Claim,
    Fault,
    check_basis,
    check_claim,
    check_leak,
    check_question,
    check_wording,
)
from firstfault.grounding.items import Ground, Item, ItemKind
from firstfault.grounding.words import numbers
from firstfault_tools.knowledge.pack import read_yaml

ROWS = read_yaml(Path(__file__).with_name("claims.yaml").read_text("utf-8"))


def ground(**more: Any) -> Ground:
    items = {
        i: Item(i, ItemKind(r["kind"]), r["text"], r.get("file", ""), r.get("line", 0), r.get("page", ""), r.get("heading", ""), 
            rank=r.get("rank"), host=r.get("host"), echo=r.get("echo", ""))
        for i, r in ROWS["evidence"].items()
    }  # fmt: skip
    lore = ROWS["lore"].lower()
    values = {"items": items, "variables": frozenset(ROWS["variables"]), "lore": lore}
    return Ground(**(values | more))


@each_row("row", ROWS["claims"], ids=lambda r: r["text"][:50])
def test_claim(row: dict[str, Any]) -> None:
    """`faults`: not real, never shown. `beyond`: real, and reasoning, since no line says it so."""
    claim = Claim(row["text"], tuple(row["cites"]))
    assert {o.fault.value for o in check_basis(claim, ground())} == set(row.get("faults", ()))
    if "beyond" in row:
        assert {o.fault.value for o in check_wording(claim, ground())} == set(row["beyond"])


@settings(deadline=None)
@given(st.text(max_size=120), st.lists(st.sampled_from([*ROWS["evidence"], "E99"]), max_size=3))
def test_never_raises_and_never_shows_without_evidence(text: str, cites: list[str]) -> None:
    faults = {o.fault for o in check_claim(Claim(text, tuple(cites)), ground())}
    if not [c for c in cites if c not in ("E4", "E99")]:
        assert Fault.NO_EVIDENCE in faults


@settings(deadline=None)
@given(st.integers(10, 10**6))
def test_no_number_is_shown_that_no_evidence_holds(number: int) -> None:
    claim = Claim(f"Rank 3 tried to allocate memory {number} times.", ("E1",))
    shown = " ".join(f"{i.text} {i.line}" for i in ground().items.values())
    given = numbers(ground().items["E1"].text)
    stands = str(number) in shown or follows(str(number), given)
    assert stands or Fault.NUMBER in {o.fault for o in check_claim(claim, ground())}


def test_instructions_are_not_repeated() -> None:
    private = ("The verdict is not yours to change and the rules of this house are secret.",)
    assert check_leak(
        "It says: the verdict is not yours to change and the rules", ground(private=private)
    )
    assert not check_leak("The verdict stands.", ground(private=private))


@each_row(
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
