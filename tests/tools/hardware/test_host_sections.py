"""Which host does a pasted command output come from? Prompts, ssh, headings, prefixes, BMC names."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.findings import Finding, Level
from firstfault_tools.hardware.excerpt import number_lines, quote_line
from firstfault_tools.hardware.host_sections import (
    attach_sections,
    map_hosts,
    read_sign,
    split_sections,
    strip_bmc,
)

SIGNS = [
    ("node7$ nvidia-smi", ("node7", "nvidia-smi")),
    ("node-03 $ dcgmi diag -r 3", ("node-03", "dcgmi diag -r 3")),
    ("[root@gpu12 ~]# dmesg -T", ("gpu12", "dmesg -T")),
    ("ann@ws4:~/run$ df -h", ("ws4", "df -h")),
    ("(base) ann@ws4:~/run$ df -h", ("ws4", "df -h")),
    ("ann@ws4 ~ % df -h", ("ws4", "df -h")),
    ("$ ssh node9 ip link", ("node9", "ssh node9 ip link")),
    ("head1$ ssh -o BatchMode=yes node9 ip link", ("node9", "ssh -o BatchMode=yes node9 ip link")),
    ("$ ipmitool -H node9-bmc sel elist", ("node9", "ipmitool -H node9-bmc sel elist")),
    ("== node7", ("node7", "")),
    ("== node7: nvidia-smi -q", ("node7", "nvidia-smi -q")),
    ("--- node7 ---", ("node7", "")),
    ("==> node7 <==", ("node7", "")),
    ("node7:", ("node7", "")),
    ("[node7]", ("node7", "")),
    ("$ df -h", (None, "df -h")),
    ("===== checks afterwards =====", None),
    ("# node7 was replaced on Friday", None),
    ("step 200 # of node7", None),
    ("|-----  Deployment  --------+-----|", None),
    ("rank3: Traceback", None),
]


@each_row(("line", "sign"), SIGNS)
def test_each_sign_names_its_host(line: str, sign: tuple[str | None, str] | None) -> None:
    assert read_sign(line) == sign


def test_lines_belong_to_the_last_host_named() -> None:
    lines = number_lines("a\n== n1\nb\nc\n== n2: uptime\nd\n$ hostname\ne")
    assert map_hosts(split_sections(lines)) == {2: "n1", 3: "n1", 4: "n1", 5: "n2", 6: "n2"}


def test_prefixes_count_only_in_a_row() -> None:
    rows = number_lines("n1: a\nn1: b\nn1: c\nword\nn2: x")
    assert map_hosts(split_sections(rows)) == {1: "n1", 2: "n1", 3: "n1"}
    compose = number_lines("a40-3 | a\na40-3 | b\na40-4 | c")
    assert map_hosts(split_sections(compose)) == {1: "a40-3", 2: "a40-3", 3: "a40-4"}


@each_row("name", ["n7-bmc", "bmc-n7", "n7-ipmi", "idrac-n7", "n7-ilo"])
def test_management_names_become_host_names(name: str) -> None:
    assert strip_bmc(name) == "n7"


def test_findings_get_the_host_of_their_section() -> None:
    lines = number_lines("== n1\nx\n== n2\ny")
    findings = [
        Finding("k", "t", Level.CAUSE, evidence=(quote_line("f", 4, "y"),)),
        Finding("k", "t", Level.CAUSE, host="n9", evidence=(quote_line("f", 2, "x"),)),
    ]
    assert [f.host for f in attach_sections(findings, lines)] == ["n2", "n9"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=30))
def test_no_line_is_lost(texts: list[str]) -> None:
    lines = list(enumerate(texts, 1))
    kept = [number for s in split_sections(lines) for number, _ in s.lines]
    assert kept == [number for number, _ in lines]
