"""Do the tools answer a real MCP client over stdio, bounded, with line references, and read only?"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from evals.cases import find_case
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client, StdioServerParameters

from firstfault.mcp_server.bounds import MAX_CHARS, write_bounded
from firstfault.mcp_server.desk import Desk
from firstfault.mcp_server.server import RECORDING
from firstfault.mcp_server.toolset import offer_tools
from firstfault_tools.registry import calculators

ROOT = Path(__file__).parents[3]
FLAP = find_case("comm-ib-port-flap")
Call = Callable[..., Awaitable[Any]]


def run_client(talk: Callable[[Client], Awaitable[None]], *options: str) -> None:
    """Start `firstfault mcp` as a client program does, and talk to it."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-c", "from firstfault.cli import main; main()", "mcp", *options],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'app'}{os.pathsep}{ROOT / 'tools'}"},
    )

    async def meet() -> None:
        async with Client(server, read_timeout_seconds=60) as client:
            await talk(client)

    # a browser that is open in this process keeps an event loop of its own in the main thread
    with ThreadPoolExecutor(1) as apart:
        apart.submit(asyncio.run, asyncio.wait_for(meet(), 120)).result()


async def ask(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    text = result.content[0].text  # type: ignore[union-attr]
    assert not result.is_error, text
    assert len(text) <= MAX_CHARS
    answer: dict[str, Any] = json.loads(text)
    return answer


async def refuse(client: Client, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    text: str = result.content[0].text  # type: ignore[union-attr]
    assert "Traceback" not in text
    return text


def test_tools_are_listed_and_read_only() -> None:
    async def talk(client: Client) -> None:
        tools = {t.name: t for t in (await client.list_tools()).tools}
        assert {"diagnose", "overview", "window", "grep", "search", "passage", "read"} <= set(tools)
        assert {f"calculate_{c.name}" for c in calculators()} <= set(tools)
        for tool in tools.values():
            assert tool.description
            assert tool.input_schema["type"] == "object"
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint is (tool.name not in RECORDING)
            assert tool.annotations.destructive_hint is False

    run_client(talk)


def test_a_whole_investigation() -> None:
    async def talk(client: Client) -> None:
        paths = [str(FLAP / "log.txt"), str(FLAP / "dmesg.txt")]
        found = await ask(client, "diagnose", paths=paths, question="which node?")
        assert found["schema"] == "firstfault.diagnosis/1"
        assert found["verdict"] == "fault"
        handle, cited = found["evidence"], found["citations"][0]
        window = await ask(client, "window", evidence=handle, file=cited["file"], line=cited["line"], around=1)  # fmt: skip
        lines = {row["line"]: row["text"] for row in window["lines"]}
        assert " ".join(cited["quote"].split()) in " ".join(lines[cited["line"]].split())
        overview = await ask(client, "overview", evidence=handle)
        assert {f["file"] for f in overview["files"]} == {"log.txt", "dmesg.txt"}
        hits = await ask(client, "grep", evidence=handle, pattern=r"port error|Link DOWN", limit=2)
        assert hits["matches"] > hits["shown"] == 2
        pages = await ask(client, "search", query="watchdog collective timeout")
        top = pages["passages"][0]
        passage = await ask(client, "passage", page=top["page"], heading=top["heading"])
        assert passage["text"]
        bubble = await ask(client, "calculate_bubble", schedule="1f1b", stages=4, microbatches=8)
        assert bubble

    run_client(talk)


def test_what_is_not_allowed_is_refused_with_a_reason(tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        assert "no such file" in await refuse(client, "diagnose", paths=[str(tmp_path / "none")])
        assert "paths" in await refuse(client, "diagnose")
        assert "a path is empty" in await refuse(client, "diagnose", paths=[""])
        assert "no tool" in await refuse(client, "delete_everything")
        assert "additional" in (await refuse(client, "window", evidence="x", file="y", line=1, z=2)).lower()  # fmt: skip
        found = await ask(client, "diagnose", paths=[str(FLAP / "log.txt")])
        handle = found["evidence"]
        for file in ("/etc/passwd", "../../etc/passwd", "dmesg.txt"):
            text = await refuse(client, "window", evidence=handle, file=file, line=1)
            assert "no file" in text
        assert "no incident" in await refuse(client, "grep", evidence="guess", pattern="x")
        assert "pattern" in await refuse(client, "grep", evidence=handle, pattern="(?=x)")
        assert "pattern: missing )" in await refuse(client, "grep", evidence=handle, pattern="(")
        assert "query: empty" in await refuse(client, "search", query=" ")
        assert "no line" in await refuse(client, "window", evidence=handle, file="log.txt", line=10**6)  # fmt: skip

    run_client(talk)


def test_a_client_cannot_leave_the_roots(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    root.mkdir()
    other.mkdir()
    (root / "run.log").write_text("[rank1]: torch.OutOfMemoryError: CUDA out of memory.\n")
    (other / "private.log").write_text("RuntimeError: not yours\n")
    (root / "link.log").symlink_to(other / "private.log")
    (root / "folder").symlink_to(other)
    ways = [
        str(other / "private.log"),
        str(other),
        f"{root}/../other/private.log",
        str(root / "link.log"),
        str(root / "folder"),
        str(root / "folder" / "private.log"),
        f"{root}2/run.log",
        "/etc/passwd",
        "~/.ssh/id_rsa",
        "/proc/self/environ",
        "/",
    ]

    async def talk(client: Client) -> None:
        found = await ask(client, "diagnose", paths=[str(root / "run.log")])
        assert found["category"] == "oom"
        for way in ways:
            for tool in ("diagnose", "read"):
                text = await refuse(client, tool, paths=[way])
                assert "outside the folders of FIRSTFAULT_MCP_ROOTS" in text, way
                await refuse(client, tool, paths=[str(root / "run.log"), way])
        whole = await ask(client, "diagnose", paths=[str(root)])
        assert "not yours" not in json.dumps(whole)
        # a file that turns into a link after it was named
        (root / "run.log").unlink()
        (root / "run.log").symlink_to(other / "private.log")
        for handle in (found["evidence"], whole["evidence"]):
            await refuse(client, "window", evidence=handle, file="run.log", line=1)
            hits = await client.call_tool("grep", {"evidence": handle, "pattern": "."})
            assert "not yours" not in hits.content[0].text  # type: ignore[union-attr]

    run_client(talk, "--root", str(root))


def test_without_roots_the_machine_itself_is_still_closed(tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        for way in ("/proc/self/environ", "/sys/kernel", "/dev/stdin"):
            assert "never read" in await refuse(client, "read", paths=[way])

    run_client(talk)


@pytest.fixture(scope="module")
def desk() -> Desk:
    return Desk()


def test_a_recorded_incident_is_a_handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from firstfault.service import NamedPath, NewIncident, open_service

    monkeypatch.setenv("FIRSTFAULT_DATA", str(tmp_path))
    with open_service() as service:
        incident = service.start(NewIncident((NamedPath(FLAP / "log.txt"),), "which node?"))
        for _ in service.follow(incident):
            pass
    desk = Desk()
    assert desk.incidents("node")["incidents"][0]["id"] == incident
    found = desk.incident(incident)
    assert desk.grep(found["evidence"], "port error")["matches"] > 0
    desk.service.close()


def test_secrets_do_not_leave(desk: Desk, tmp_path: Path) -> None:
    secret = "hf_" + "Zz9Yy8" * 6
    (tmp_path / "run.log").write_text(f"token={secret}\nRuntimeError: boom\n")
    found = desk.diagnose(paths=[str(tmp_path / "run.log")])
    answers = [
        found,
        desk.window(found["evidence"], "run.log", 1),
        desk.grep(found["evidence"], "token"),
        desk.overview(found["evidence"]),
    ]
    assert secret not in json.dumps(answers)


def test_huge_evidence_gives_a_bounded_answer(desk: Desk) -> None:
    log = "".join(f"[rank{n % 512}]: RuntimeError: boom {n} {'x' * 500}\n" for n in range(3_000))
    found = desk.diagnose(text=log)
    assert len(write_bounded(found)) <= MAX_CHARS
    hits = desk.grep(found["evidence"], "boom", limit=200)
    assert hits["matches"] == 3_000
    assert len(write_bounded(hits)) <= MAX_CHARS


def test_every_tool_of_the_file_has_its_method(desk: Desk) -> None:
    for offer in offer_tools(desk).values():
        assert callable(offer.run)
        assert re.fullmatch(r"[a-z][a-z0-9_]{2,50}", offer.name)


def test_the_skill_names_only_tools_that_exist(desk: Desk) -> None:
    text = (ROOT / "docs" / "skill" / "SKILL.md").read_text()
    table = text.split("## How to answer")[0]
    known = set(offer_tools(desk))
    named = {n for n in re.findall(r"`([a-z_]{4,40})`", table) if not n.startswith("text")}
    assert named <= known, named - known
    assert {"diagnose", "window", "grep", "search"} <= named


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=10), inner, max_size=10),
    max_leaves=60,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(JSON, st.integers(300, 3_000))
def test_every_answer_is_json_within_its_bound(value: object, limit: int) -> None:
    text = write_bounded(value, limit)
    json.loads(text)
    assert len(text) <= max(limit, 300)
