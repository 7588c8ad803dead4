from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.collectives.environment import (
    READER,
    Status,
    find_settings,
    known_variables,
    lint_environment,
)
from firstfault_tools.registry import Artefact


def kinds(text: str) -> list[str]:
    settings = find_settings(enumerate(text.splitlines(), 1), "run.sh")
    return [f.kind.removeprefix("environment.") for f in lint_environment(settings)]


@each_row(
    ("text", "expected"),
    [
        ("export NCCL_TIMEOUT=1800", ["made_up_variable"]),
        ("export TORCH_DISTRIBUTED_TIMEOUT=1800", ["made_up_variable"]),
        ("export NCCL_LL_THRESHOLD=0", ["dead_variable"]),
        ("export NCCL_IB_CUDA_SUPPORT=1", ["dead_variable"]),
        ("NCCL_ASYNC_ERROR_HANDLING=1 python train.py", ["renamed_variable"]),
        ("export TORCH_NCCL_TRACE_BUFFER_SIZE=2000", ["renamed_variable"]),
        ("mpirun -x NCCL_P2P_DISABLE=1 -x NCCL_DEBUG=WARN ./a", ["harmful_value"]),
        ("export NCCL_P2P_DISABLE=0", []),
        ("export NCCL_IB_DISABLE='1'", ["harmful_value"]),
        ("os.environ['NCCL_PROTO'] = 'Simple'", ["harmful_value"]),
        ("        - name: NCCL_TIMEOUT\n          value: '1800'", ["made_up_variable"]),
        ('  "NCCL_NVLS_ENABLE": "0",', []),
        ("export NCCL_SOKET_IFNAME=eth0", ["unknown_variable"]),
        ("# export NCCL_TIMEOUT=1800", []),
        ("export NCCL_SOCKET_IFNAME=ens", []),
        ("export CUDA_LAUNCH_BLOCKING=1", ["harmful_value"]),
        ("export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=600", []),
        ("export FI_SOMETHING_NEW=1", []),
    ],
)
def test_lint(text: str, expected: list[str]) -> None:
    assert kinds(text) == expected


def test_near_miss_suggests_the_name() -> None:
    settings = find_settings([(1, "export NCCL_SOKET_IFNAME=eth0")], "run.sh")
    assert "NCCL_SOCKET_IFNAME" in lint_environment(settings)[0].title


def test_made_up_names_say_what_to_use_instead() -> None:
    made_up = [v for v in known_variables().values() if v.status is Status.MADE_UP]
    assert len(made_up) >= 10
    assert all(v.instead for v in made_up)


def test_alternatives_exist_themselves() -> None:
    known = known_variables()
    for variable in known.values():
        word = variable.instead.split("=")[0].split(",")[0].split(" ")[0]
        if word.isupper() and "_" in word:
            assert known[word].status in (Status.LIVE, Status.RENAMED), variable.name


def test_reader_takes_scripts_and_leaves_logs(tmp_path: Path) -> None:
    script = tmp_path / "train.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH -N 2\nexport NCCL_TIMEOUT=1800\nsrun python train.py\n")
    assert READER.recognise("train.sbatch", script.read_bytes())
    assert not READER.recognise("log.txt", script.read_bytes())
    reading = READER.read((Artefact("train.sbatch", script),))
    assert reading.findings[0].evidence[0].line == 3
    json.dumps(dict(reading.data))


@settings(deadline=None)
@given(st.lists(st.text(), max_size=20))
def test_any_text_is_survived(lines: list[str]) -> None:
    lint_environment(find_settings(enumerate(lines, 1), "x"))
