"""Do rules ask for roles and never for names of signatures? Is an unknown role an error that names it?"""

from __future__ import annotations

from tests.rows import each_row
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.finding_roles import FindingRole, roles_of_kind
from firstfault_tools.findings import Finding, Level
from firstfault_tools.kind_pages import page_of_kind
from firstfault_tools.log.signature import SignatureSet, load_signatures, parse_signature

ROOT = Path(__file__).resolve().parents[2]
IDS = frozenset(f.stem for f in (ROOT / "knowledge" / "signatures").rglob("*.yaml"))
ROW = {
    "id": "one", "title": "One", "category": None, "level": "cause",
    "patterns": ["one"], "root_cause": "one", "page": "one",
}  # fmt: skip


def test_no_signature_is_named_in_code() -> None:
    named = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for room in ("app", "tools")
        for file in sorted((ROOT / room).rglob("*.py"))
        for line, name in _signatures_in(file)
    ]
    assert not named, "ask for a role (finding_roles.py) instead of a name:\n" + "\n".join(named)


def _signatures_in(file: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from ((node.lineno, name) for name in _names(node.value))


def _names(text: str) -> list[str]:
    """Ids in a constant: all of it, or parts of it after `signature.` or in a list of alternatives."""
    told = re.search(r"signature(?:\\?\.)[\w(]", text) and " " not in text
    words = re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)+", text)
    alone = text.removeprefix("signature.") in IDS
    listed = [w for w in words if w in IDS and re.search(rf"[|(.]{w}[|)]", text)]
    return [text[:80]] if told or alone else listed


def test_names_are_found_in_constants() -> None:
    assert _names("signature.cuda-oom") and _names("cuda-oom") and _names(r"^(?:cuda-oom|xla-oom)$")
    assert _names(r"^signature\.k8s-") and not _names("signature.") and not _names("a cuda-oom")


def test_every_role_is_played() -> None:
    rows = [
        yaml.load(f.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        for f in (ROOT / "knowledge" / "signatures").rglob("*.yaml")
    ]
    played = {role for row in rows for role in row.get("roles") or ()}
    unplayed = set(FindingRole) - played
    assert unplayed == {FindingRole.OF_DISK, FindingRole.ABSENT}, "only readers report those"


def test_unknown_role_names_file_and_role() -> None:
    with pytest.raises(UnreadableArtefact, match=r"one.*lost_pear"):
        parse_signature({**ROW, "roles": ["lost_pear"]}, "one")


def test_missing_source_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(yaml.safe_dump(ROW), encoding="utf-8")
    with pytest.raises(UnreadableArtefact, match=r"one\.yaml.*'source'"):
        load_signatures(tmp_path)
    file.write_text(yaml.safe_dump({**ROW, "source": ["an issue"]}), encoding="utf-8")
    assert [s.id for s in load_signatures(tmp_path)] == ["one"]


def test_signatures_by_role() -> None:
    signatures = tuple(
        parse_signature({**ROW, "id": name, "roles": roles}, name)
        for name, roles in (("a", ["vague", "lost_peer"]), ("b", []), ("c", ["vague"]))
    )
    known = SignatureSet(signatures)
    assert known.with_role(FindingRole.VAGUE) == {0, 2}
    assert known.with_role(FindingRole.STANDS) == frozenset()


@each_row(
    ("kind", "role", "held"),
    [
        ("kubernetes.node_not_ready", FindingRole.NODE_LOST, True),
        ("kubernetes.evicted", FindingRole.NODE_LOST, False),
        ("hardware.xid", FindingRole.GPU_FAULT, True),
        ("hardware.xid_count", FindingRole.GPU_FAULT, False),
        ("hardware.xid_count", FindingRole.ON_GPU, True),
    ],
)
def test_roles_of_kinds(kind: str, role: FindingRole, held: bool) -> None:
    assert (role in roles_of_kind(kind)) is held
    assert Finding(kind, kind, Level.CAUSE).has(role) is held


def test_pages_of_kinds_exist() -> None:
    pages = {f.stem for f in (ROOT / "knowledge" / "pages").rglob("*.md")}
    assert page_of_kind("ranks.guarded_call") in pages
    assert page_of_kind("no.such_kind") is None
