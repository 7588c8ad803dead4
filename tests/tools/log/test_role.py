"""Which part an artefact plays in its incident, by its name and its lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.log.scan import build_set, scan_file
from firstfault_tools.roles import Role

STEPS = "".join(
    f"2026-03-01 10:00:{i:02d} iteration {i} | loss {3 - i / 50:.3f}\n" for i in range(1, 30)
)
NCCL = "# nThread 1 nGpus 1\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 345.27\n"
PERFTEST = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n 65536      5000             392.10             391.80               0.747\n"
DMESG = "[Mon Mar  2 04:11:09 2026] mlx5_core 0000:b1:00.0: Link up\n" * 5
KERNEL = "[  12.123456] usb 1-1: new device\n" * 5
IBSTAT = "CA 'mlx5_0'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n\t\tRate: 400\n"
SMI = "index, temperature.gpu, utilization.gpu [%]\n0, 61, 98 %\n1, 60, 99 %\n"
YAML = "model: llama-8b\nlr: 1.0e-4\nmicro_batch_size: 2\n"
SERVICE = "2026-03-01 10:00:00 INFO agent started\n2026-03-01 10:00:01 INFO agent ready\n"
WORDS = "lorem ipsum dolor\nsit amet consectetur\n"


@pytest.mark.parametrize(
    ("name", "text", "role"),
    [
        ("a.log", STEPS, Role.RUN),
        ("a.log", NCCL + STEPS, Role.RUN),
        ("a.log", SERVICE, Role.RUN),
        ("rank3.log", WORDS, Role.RUN),
        ("a.txt", NCCL, Role.EXPERIMENT),
        ("a.txt", NCCL + "Successful task run with exit code: 0\n", Role.EXPERIMENT),
        ("a.txt", PERFTEST, Role.EXPERIMENT),
        ("a.txt", DMESG, Role.COUNTER),
        ("a.txt", KERNEL, Role.COUNTER),
        ("a.txt", IBSTAT, Role.COUNTER),
        ("a.csv", SMI, Role.COUNTER),
        ("config.yaml", YAML, Role.CONFIGURATION),
        ("a.txt", YAML, Role.CONFIGURATION),
        ("README.md", WORDS, Role.DESCRIPTION),
        ("a.dat", WORDS, Role.UNKNOWN),
    ],
)
def test_role(name: str, text: str, role: Role, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    signatures = build_set(())
    incident = LogIncident((scan_file(path, name, signatures),), signatures)
    assert incident.role_of(name) is role


def test_an_experiment_ends_no_run_and_sets_no_world(tmp_path: Path) -> None:
    signatures = build_set(())
    digests = []
    for name, text in (("run.log", "world_size: 4\nstarting\n"), ("t.txt", NCCL + "nranks 64\nexit code 0\n")):  # fmt: skip
        (tmp_path / name).write_text(text, encoding="utf-8")
        digests.append(scan_file(tmp_path / name, name, signatures))
    incident = LogIncident(tuple(digests), signatures)
    assert not incident.finished
    assert incident.world_size == 4
