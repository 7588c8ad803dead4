"""A full storage target of Lustre in a listing, and the write that it refused."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.checkpoint.full_target import KIND, find_in_lines, join_full_target
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Evidence, Finding, Level

ROW = "fs-OST{index:04x}_UUID   1.1T   {used}   {free}  {percent}% /fsx[OST:{index}]"
TAIL = "filesystem_summary:   13.2T   11.9T   736.0G  94% /fsx"


def listing(*full: int, of: int = 4) -> list[tuple[int, str]]:
    rows = [
        ROW.format(index=i, used="1.1T", free="0.0K", percent=100)
        if i in full
        else ROW.format(index=i, used="0.9T", free="70.0G", percent=88)
        for i in range(of)
    ]
    return list(enumerate([*rows, TAIL], start=1))


def refused(path: str = "") -> Finding:
    return Finding(
        "signature.full", "disk full", Level.CAUSE, Category.ENVIRONMENT,
        evidence=(Evidence("t.log", 9, "[Errno 28]"),), rank=5, host="n1", facts={"path": path}, roles=(FindingRole.NO_SPACE,),
    )  # fmt: skip


@each_row(
    ("full", "words"),
    [
        ((2,), ["OST 2 (fs-OST0002)", "100% full", "736.0G free of the whole"]),
        ((1, 2), ["OSTs 1 (fs-OST0001), 2"]),
    ],
)
def test_a_full_target_among_others(full: tuple[int, ...], words: list[str]) -> None:
    (found,) = find_in_lines(listing(*full), "df.txt")
    assert all(word in found.title for word in words)


@each_row("full", [(), (0, 1, 2, 3)])
def test_none_or_all_full(full: tuple[int, ...]) -> None:
    assert find_in_lines(listing(*full), "df.txt") == ()


@each_row(("path", "joined"), [("", True), ("/fsx/c/__5_0", True), ("/home/x", False)])
def test_the_target_leads_and_the_writer_is_its_victim(path: str, joined: bool) -> None:
    (found,) = find_in_lines(listing(2), "df.txt")
    target, write = join_full_target([found, refused(path)])
    assert target.kind == KIND
    assert target.rank == (5 if joined else None)
    assert write.level is (Level.SYMPTOM if joined else Level.CAUSE)
