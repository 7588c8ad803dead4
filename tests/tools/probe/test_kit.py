"""The kit as one file: its flow on a stand-in node, refusal, time limits, stop, no GPU, what it may import."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.rows import each_row

from firstfault_tools.probe.build import KIT, build_kit, write_kit
from firstfault_tools.probe.kit import command, health, record, surroundings
from firstfault_tools.probe.kit.main import COMPONENTS, choose_tests, parse_arguments

FAKE = Path(__file__).with_name("fake_node")
GPU_TESTS = ("gemm", "copy", "memory", "host_link", "peer", "all_reduce", "skew")


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_kit(tmp_path_factory.mktemp("kit"))


def environment(node: bool = True, **extra: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "RANK", "WORLD"))}
    if node:
        kept["PATH"] = f"{FAKE / 'bin'}{os.pathsep}{kept['PATH']}"
        kept["PYTHONPATH"] = str(FAKE)
    return {**kept, **extra}


def run(kit: Path, *arguments: str, node: bool = True, **extra: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(kit), *arguments],
        env=environment(node, **extra),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def of(records: list[dict[str, Any]], test: str) -> list[dict[str, Any]]:
    return [r for r in records if r["test"] == test and r["kind"] == "result"]


def test_the_same_source_gives_the_same_bytes() -> None:
    assert build_kit() == build_kit()


def test_modules_need_only_the_standard_library_torch_and_python_39() -> None:
    allowed = set(sys.stdlib_module_names) | {"torch"}
    for path in KIT.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
        for node in ast.walk(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            assert {name.split(".")[0] for name in names} <= allowed, path.name
            if isinstance(node, ast.Call):
                assert not any(k.arg == "shell" for k in node.keywords), path.name
        torch_at_top = [
            n
            for n in tree.body
            if isinstance(n, ast.Import) and any(a.name == "torch" for a in n.names)
        ]
        assert not torch_at_top, path.name


def test_every_command_only_reads() -> None:
    assert {argv[0] for argv in command.ALLOWED.values()} == {
        "nvidia-smi", "systemctl", "chronyc", "timedatectl", "dmesg",
    }  # fmt: skip
    words = {word for argv in command.ALLOWED.values() for word in argv}
    changing = {"-r", "--gpu-reset", "-pm", "-pl", "-lgc", "-e", "start", "restart", "stop", "-c", "-C", "--clear", "set-ntp"}  # fmt: skip
    assert not words & changing
    with pytest.raises(KeyError):
        command.run_allowed("rm")


def test_a_whole_run_on_two_gpus(kit: Path, tmp_path: Path) -> None:
    out = tmp_path / "probe-{host}.jsonl"
    records = run(kit, "--out", str(out), FAKE_SECONDS="0.0014,0.0028")
    assert all(r["schema"] == record.SCHEMA for r in records)
    assert records[0]["kind"] == "header"
    assert records[-1]["kind"] == "summary"
    for name in ("health", "gemm", "copy", "memory", "host_link", "all_reduce", "skew"):
        assert {r["gpu_index"] for r in of(records, name)} == {0, 1}, name
    assert [(r["values"]["from_gpu"], r["values"]["to_gpu"]) for r in of(records, "peer")] == [
        (0, 1),
        (1, 0),
    ]
    rates = {
        (r["gpu_index"], r["values"]["dtype"], r["values"]["size"]): r["values"]["rate_tflops"]
        for r in of(records, "gemm")
        if r["status"] == "ok"
    }
    assert rates[0, "bf16", 8192] == pytest.approx(2 * 8192**3 / 0.0014 / 1e12, rel=0.01)
    assert rates[1, "bf16", 8192] == pytest.approx(2 * 8192**3 / 0.0028 / 1e12, rel=0.01)
    (fp8, _) = [r for r in of(records, "gemm") if r["status"] != "ok"]
    assert fp8["reason"].startswith("not available here")
    assert of(records, "memory")[0]["values"]["wrong_words"] == 0
    (saved,) = tmp_path.glob("probe-*.jsonl")
    assert saved.read_text().splitlines() == [json.dumps(r) for r in records]


def test_a_busy_gpu_is_refused_unless_told(kit: Path) -> None:
    records = run(kit, "--tests", "gemm", FAKE_LOAD="0,100")
    (busy,) = of(records, "busy")
    assert (busy["gpu_index"], busy["status"]) == (1, "refused")
    assert {r["gpu_index"] for r in of(records, "gemm")} == {0}
    assert busy["values"]["processes"] == ["4242 python 512 MiB"]
    allowed = run(kit, "--tests", "gemm", "--allow-busy", FAKE_LOAD="0,100")
    assert {r["gpu_index"] for r in of(allowed, "gemm")} == {0, 1}
    assert of(allowed, "busy")[0]["status"] == "ok"


def test_a_gpu_that_hangs_costs_only_itself(kit: Path) -> None:
    records = run(kit, "--tests", "copy,memory,all_reduce", "--limit-s", "3", FAKE_HANG="1")
    assert {r["gpu_index"]: r["status"] for r in of(records, "copy")} == {0: "ok", 1: "timeout"}
    assert {r["gpu_index"]: r["status"] for r in of(records, "memory")} == {0: "ok", 1: "failed"}
    assert "GPU 1 is gone" in of(records, "all_reduce")[0]["reason"]


def test_a_gpu_that_fails_says_how(kit: Path) -> None:
    records = run(kit, "--tests", "gemm", FAKE_FAIL="0")
    failed = [r for r in of(records, "gemm") if r["status"] == "failed"]
    assert {r["gpu_index"] for r in failed} == {0}
    assert "uncorrectable ECC error" in failed[0]["reason"]


def test_without_a_gpu_every_test_says_so(kit: Path) -> None:
    records = run(kit, "--tests", ",".join(("health", *GPU_TESTS)), node=False, PATH="/nowhere")
    for name in GPU_TESTS:
        assert [(r["status"], r["reason"]) for r in of(records, name)] == [
            ("unavailable", "not available here: no GPU")
        ]
    assert "nvidia-smi is not installed" in of(records, "health")[0]["reason"]


def test_one_rank_of_a_job(kit: Path) -> None:
    records = run(
        kit, "--tests", "gemm,all_reduce,skew",
        RANK="5", WORLD_SIZE="8", LOCAL_RANK="1", MASTER_ADDR="head",
    )  # fmt: skip
    assert {r["gpu_index"] for r in of(records, "gemm")} == {1}
    assert {r["rank"] for r in of(records, "all_reduce")} == {5}
    assert of(records, "all_reduce")[0]["values"]["ranks"] == 8


@each_row("only", sorted(COMPONENTS))
def test_one_component_alone(only: str) -> None:
    tests = choose_tests(parse_arguments(["--only", only]))
    assert set(tests) == {"health", *COMPONENTS[only]}


def test_an_unknown_test_is_a_usage_error(kit: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(kit), "--tests", "gem"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "known: health" in done.stderr


def test_show_runs_nothing(kit: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(kit), "--show"], capture_output=True, text=True, check=True
    )
    assert "nvidia-smi -q -x" in done.stdout
    assert record.SCHEMA not in done.stdout


def test_it_can_be_stopped(kit: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, str(kit), "--tests", "copy", "--limit-s", "60"],
        env=environment(FAKE_HANG="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "test: copy" in line:
            break
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert json.loads(out.splitlines()[-1])["status"] == "stopped"


def test_secrets_are_not_among_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("CUDA_API_TOKEN", "s3cret")
    shown = surroundings.check_environment()["values"]["variables"]
    assert shown["NCCL_DEBUG"] == "INFO"
    assert "CUDA_API_TOKEN" not in shown


CAPTURE = Path("/work/shared/cases/captures/nvidia-smi-q.xml")


@pytest.mark.skipif(not CAPTURE.is_file(), reason="captures are not here")
def test_the_real_xml_gives_health() -> None:
    found = health.parse_detail(CAPTURE.read_text(encoding="utf-8"))
    assert set(found) == {"00000000:00:06.0", "00000000:00:07.0"}
    one = found["00000000:00:06.0"]
    assert one["row_remap_pending"] == "No"
    assert one["thermal_margin_c"] == 57
    assert one["fabric_state"] == "Completed"
    assert one["recovery_action"] == "None"


def test_xml_with_entities_gives_nothing() -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "b">]><nvidia_smi_log><gpu id="1"><x>&a;</x></gpu></nvidia_smi_log>'
    assert health.parse_detail(bomb) == {}
