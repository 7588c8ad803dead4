"""`nvidia-smi nvlink` as saved and as pasted; formats as in azhpc-diagnostics #73 and `-e` listings."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.findings import Finding, Level
from firstfault_tools.hardware.gpu.nvlink import READER, find_in_lines
from firstfault_tools.hardware.gpu.xids import find_xids
from firstfault_tools.registry import Artefact


def status(*gpus: list[float | None]) -> str:
    lines = []
    for index, rates in enumerate(gpus):
        lines.append(f"GPU {index}: NVIDIA H100 80GB HBM3 (UUID: GPU-0000000{index})")
        for link, rate in enumerate(rates):
            lines.append(f"\t Link {link}: {'<inactive>' if rate is None else f'{rate:.3f} GB/s'}")
    return "\n".join(lines) + "\n"


def find(text: str) -> tuple[Finding, ...]:
    return find_in_lines(list(enumerate(text.split("\n"), start=1)), "n.txt")


GOOD = [26.562] * 18


def test_one_inactive_link_is_named() -> None:
    (found,) = find(status(GOOD, [*GOOD[:3], None, *GOOD[4:]]))
    assert (found.kind, found.gpu, found.level) == (
        "hardware.nvlink_inactive",
        "GPU 1",
        Level.FAILURE,
    )
    assert "NVLink 3 inactive, 17 of 18" in found.title
    assert found.evidence[0].text == "Link 3: <inactive>"
    assert found.page


def test_a_gpu_without_any_link_is_a_cause() -> None:
    (found,) = find(status(GOOD, [None] * 18, GOOD))
    assert (found.gpu, found.level) == ("GPU 1", Level.CAUSE)


def test_a_slow_link() -> None:
    (found,) = find(status(GOOD, [*GOOD[:5], 13.281, *GOOD[6:]]))
    assert (found.kind, found.gpu) == ("hardware.nvlink_slow", "GPU 1")


@each_row("text", [status(GOOD, GOOD), status([None] * 4), status([None] * 4, [None] * 4)])
def test_equal_boards_are_context(text: str) -> None:
    (found,) = find(text)
    assert (found.kind, found.level) == ("hardware.nvlink_state", Level.CONTEXT)


def test_error_counters() -> None:
    text = (
        "GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-d9)\n"
        "         Link 0: Replay Errors: 148\n         Link 0: Recovery Errors: 0\n"
        "         Link 0: CRC Errors: 65535\n         Link 1: Recovery Errors: 2\n"
    )
    found = find(text)
    assert [f.title.split(": ", 1)[1] for f in found] == [
        "NVLink 0: 65535 crc errors (the counter is full)",
        "NVLink 1: 2 recovery errors",
    ]


def test_a_saved_file_names_its_host(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(status(GOOD, [None, *GOOD[1:]]))
    artefact = Artefact("gx-22_nvlink.txt", path)
    assert READER.recognise(artefact.name, artefact.head())
    (found,) = READER.read((artefact,)).findings
    assert found.host == "gx-22"


@given(
    st.text(alphabet="GPU Link0123456789:<>inactive./\n\tGB/sReplay Errors(UUID: )", max_size=300)
)
def test_damage_raises_nothing(text: str) -> None:
    find("GPU 0: x (UUID: a)\n\t Link 0: <inactive>\n" + text)


@each_row(
    ("texts", "words"),
    [
        (
            ["NVRM: Xid (PCI:0000:3b:00): 74, pid=418, name=python, NVLink: fatal error detected on link 2(0x10000, 0x0)"],
            "fatal error of NVLink link 2",
        ),
        (
            ["NVRM: Xid (PCI:0000:3b:00): 149, pid='<unknown>', name=<unknown>, NETIR_LINK_EVT Nonfatal XC0 i0 Link 04 (0x1 0x0)"],
            "nonfatal error of NVLink link 4",
        ),
        (
            [
                "NVRM: Xid (PCI:0000:9c:00): 48, pid='<unknown>', name=<unknown>, DBE (double bit error) ECC Error",
                "NVRM: Xid (PCI:0000:9c:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu to activate.",
            ],
            "waits to be remapped",
        ),
        (
            [
                "NVRM: Xid (PCI:0000:9c:00): 48, pid='<unknown>', name=<unknown>, DBE (double bit error) ECC Error",
                "NVRM: Xid (PCI:0000:9c:00): 64, pid='<unknown>', name=<unknown>, Row Remapper: Error writing row remapper data to inforom.",
            ],
            "row remapping failed, no spare row was left",
        ),
    ],
)  # fmt: skip
def test_an_xid_says_what_its_line_and_its_neighbours_tell(texts: list[str], words: str) -> None:
    found = find_xids(list(enumerate(texts, 1)), "dmesg.txt")
    assert words in found[0].title
