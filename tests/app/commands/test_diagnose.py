"""Does `firstfault diagnose`, run as a process, keep its contract: streams, codes, nothing left behind?"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from evals.cases import find_case
from evals.fakes.fake_endpoint import serve_fake

ROOT = Path(__file__).parents[3]
OOM = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
    "GPU 3 has a total capacity of 79.11 GiB of which 1.12 GiB is free.\n"
)


def run(
    folder: Path, *arguments: str, data: bytes | None = None, **more: str
) -> subprocess.CompletedProcess[bytes]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FIRSTFAULT_")}
    environment = {**kept, "FIRSTFAULT_DATA": str(folder / "data"), **more}
    program = "from firstfault.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        input=data,
        stdin=subprocess.DEVNULL if data is None else None,
        capture_output=True,
        env=environment,
        cwd=folder,
        timeout=120,
        check=False,
    )


def test_help_lists_every_command(tmp_path: Path) -> None:
    listed = run(tmp_path, "--help").stdout.decode()
    for command in ("diagnose", "chat", "search", "postmortem", "doctor", "mcp", "watch"):
        assert re.search(rf"^  {command} ", listed, re.M), command


@pytest.mark.parametrize("packed", [False, True])
def test_nothing_stays_behind(tmp_path: Path, packed: bool) -> None:
    if packed:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            inner = gzip.compress(OOM.encode())
            info = tarfile.TarInfo("rank_3.log.gz")
            info.size = len(inner)
            tar.addfile(info, io.BytesIO(inner))
        (tmp_path / "run.tar.gz").write_bytes(buffer.getvalue())
        done = run(tmp_path, "diagnose", "run.tar.gz", "--json")
    else:
        done = run(tmp_path, "diagnose", "-", "--json", data=OOM.encode())
    assert (done.returncode, done.stderr) == (1, b"")
    assert json.loads(done.stdout)["first_failing_rank"] == 3
    assert list((tmp_path / "data").iterdir()) == []


def test_a_closed_data_folder_does_not_stop_a_diagnosis(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    done = run(tmp_path, "diagnose", "-", data=OOM.encode())
    assert done.returncode == 1, done.stderr


def test_names_of_any_bytes_give_clean_output(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for name in (b"bad\xff.log", b"esc\x1b[2J\x07.log", b"a\nFAULT forged.log"):
        text = f"{len(name)} " + OOM + "tail \u202e\x9b31m" + OOM  # no copies of each other
        (folder / os.fsdecode(name)).write_text(text)
    shown = run(tmp_path, "diagnose", "run", "--report", "r.md", NO_COLOR="1")
    assert shown.returncode == 1, shown.stderr
    for text in (shown.stdout.decode(), (tmp_path / "r.md").read_text()):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
        assert "\nFAULT forged" not in text
    as_json = run(tmp_path, "diagnose", "run", "--json").stdout.decode()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", as_json)
    assert len(json.loads(as_json)["input"]["files"]) == 3


def test_commands_are_never_cropped(tmp_path: Path) -> None:
    shown = run(tmp_path, "diagnose", "-", data=b"nothing to see\n", COLUMNS="60").stdout.decode()
    shown = shown.replace(" \\\n      ", " ")  # as a shell joins the rows of one command
    found = json.loads(run(tmp_path, "diagnose", "-", "--json", data=b"nothing to see\n").stdout)
    commands = [a["command"] for a in found["next_artefacts"] if a["command"]]
    assert any(len(c) > 60 for c in commands)
    for command in commands:
        for line in command.splitlines():
            assert f"    {line.rstrip()}\n" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["diagnose", "nope.log"], 3, "nope.log: no such file"),
        (["diagnose", "x" * 300], 3, "File name too long"),
        (["diagnose", "-", "a.log"], 2, "cannot be mixed"),
        (["diagnose", "a.log", "--report", "none/r.md"], 2, "there is no folder"),
        (["diagnose", "a.log", "--report", "r.xyz"], 2, "r.xyz"),
        (["diagnose", "-"], 3, "stdin: empty"),
        (["metrics", "nope.log"], 3, "No such file"),
        (["bogus"], 2, "bogus"),
    ],
)
def test_errors_say_what_and_end_with_the_documented_code(
    tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    (tmp_path / "a.log").write_text(OOM)
    done = run(tmp_path, *arguments)
    assert done.returncode == code
    assert done.stdout == b""
    assert said in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_an_unforeseen_failure_is_short_and_detailed_on_request(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(OOM)
    (tmp_path / "cut").write_text("")
    broken = {"FIRSTFAULT_KNOWLEDGE": str(tmp_path / "cut")}
    short = run(tmp_path, "diagnose", "a.log", **broken)
    assert short.returncode == 4
    assert b"Traceback" not in short.stderr
    assert len(short.stderr) < 1000


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_leaves_nothing(tmp_path: Path, number: int, code: int) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FIRSTFAULT_")}
    process = subprocess.Popen(
        [sys.executable, "-c", "from firstfault.cli import main; main()", "diagnose", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**kept, "FIRSTFAULT_DATA": str(tmp_path)},
        # a shell starts what it puts in the background with SIGINT ignored, and children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("diagnose-*/piped-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(timeout=60) == code
    assert list(tmp_path.iterdir()) == []


def test_an_unset_variable_is_not_the_whole_folder(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(OOM)
    done = run(tmp_path, "diagnose", "")
    assert done.returncode == 2
    assert b"a path is empty" in done.stderr


def test_a_terminal_without_the_characters_still_gets_the_answer(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(OOM)
    done = run(tmp_path, "diagnose", "train.log", PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert b"Fix now" in done.stdout
    assert done.stdout.isascii()


def test_the_example_of_the_readme_is_what_the_command_prints(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    block = next(b for b in readme.split("```") if b.startswith("text\nFAULT"))
    named = re.search(r"`firstfault diagnose (evals/\S+)`", readme)
    assert named is not None
    printed = run(tmp_path, "diagnose", str(ROOT / named[1]), COLUMNS="104").stdout.decode()
    flat = " ".join(re.sub(r"[│╭╮╰╯─]", " ", printed).split())
    for part in block.removeprefix("text\n").split("\n\n"):
        assert " ".join(part.split()) in flat, part


def test_every_mark_of_the_answer_leads_somewhere(tmp_path: Path) -> None:
    log = find_case("public-comm-27-per-rank-continue-skips-backward") / "log.txt"
    printed = run(tmp_path, "diagnose", str(log)).stdout.decode()
    marks = set(re.findall(r"(?<!\w)\[(\d{1,2})\]", printed))
    heads = set()
    for line in printed.splitlines():
        heads |= set(re.findall(r"\[(\d+)\]", re.match(r"(?:\[\d+\])*", line)[0]))  # type: ignore[index]
    assert len(marks) > 10
    assert marks <= heads


def test_an_address_that_is_not_read_is_said(tmp_path: Path) -> None:
    done = run(tmp_path, "diagnose", "hdfs://cluster/run-7/log.txt")
    assert done.returncode == 3
    assert b"s3://, gs://" in done.stderr


@pytest.mark.parametrize(
    ("name", "more", "says"),
    [
        ("stall", {"FIRSTFAULT_MODEL_WAIT_S": "1"}, "did not answer within 1 s"),
        ("dribble", {"FIRSTFAULT_MODEL_WAIT_S": "8"}, "did not answer within 8 s"),
        ("prose", {"FIRSTFAULT_MODEL_STRUCTURE": "schema"}, "did not answer in the schema"),
        ("500", {}, "failed (500)"),
    ],
)
def test_the_first_verdict_is_printed_whatever_the_model_does(
    tmp_path: Path, name: str, more: dict[str, str], says: str
) -> None:
    with serve_fake() as fake:
        variables = {"FIRSTFAULT_MODEL": name, "FIRSTFAULT_MODEL_URL": fake.url, **more}
        done = run(tmp_path, "diagnose", "--json", "-", data=OOM.encode(), **variables)
    found = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert found["verdict"] == "fault"
    assert found["category"] == "oom"
    assert says in found["tools"]["model"]["why"]
    assert not list((tmp_path / "data").glob("diagnose-*"))


def test_why_names_order_and_rules(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(OOM + "[rank0]: RuntimeError: Connection reset by peer\n")
    told = run(tmp_path, "diagnose", "--why", "--json", str(log))
    why = json.loads(told.stdout)
    assert why["schema"] == "firstfault.why/1"
    first, second = why["explanations"][:2]
    assert (first["kind"], first["rank"], first["line"]) == ("signature.cuda-oom", 3, 1)
    assert first["before"]["rule"] == "deeper-level-first"
    assert second["level"] != "cause"
    assert why["verdict"][0]["rule"] == "judge"
    text = run(tmp_path, "diagnose", "--why", str(log))
    assert text.returncode == told.returncode == 1
    assert b"before 2 by deeper-level-first" in text.stdout


def test_a_question_on_the_pipe_is_answered_in_plain_text(tmp_path: Path) -> None:
    done = run(tmp_path, "diagnose", "-", data=b"what does Xid 79 mean\n")
    told = done.stdout.decode()
    assert done.returncode == 0
    assert told.startswith("Xid 79")
    assert "```" not in told
    assert "\n    scontrol update" in told
