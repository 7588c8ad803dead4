"""Commands hold the names of the incident, and what is left open is listed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evals.cases import find_case

from firstfault.investigation.blanks import PASTED, fill_command, find_names, keep_first_step
from firstfault.investigation.diagnosis import Diagnosis, FirstLine
from firstfault.workspace import Workspace


@pytest.fixture(scope="module")
def eight() -> Diagnosis:
    log = find_case("public-comm-27-per-rank-continue-skips-backward") / "log.txt"
    return replace(
        Workspace().diagnose_paths([log]), citations=(), root_cause="", host=None, gpu=None
    )


@pytest.mark.parametrize(
    ("command", "line", "told", "left"),
    [
        ("ib_write_bw -d mlx5_0 HOST", "mlx5_core 0000:61:00.0 mlx5_3: Port: 1 Link DOWN", "ib_write_bw -d mlx5_3 gpu-a17", ()),
        ("nvme smart-log /dev/nvme0; mount", "nvme nvme2: Device not ready", "nvme smart-log /dev/nvme2; mount", ()),
        ("export NCCL_IB_HCA=mlx5_0,mlx5_1", "hca mlx5_3", "export NCCL_IB_HCA=mlx5_0,mlx5_1", ()),
        ("lspci -vv -s PCI | grep -E 'LnkCap:|PCI|AER'", "NVRM: Xid (PCI:0000:61:00.0): 79", "lspci -vv -s 0000:61:00.0 | grep -E 'LnkCap:|PCI|AER'", ()),
        ("sacct -j JOBID --format=JobID,State", "*** STEP 904122.0 ON c07 CANCELLED", "sacct -j 904122 --format=JobID,State", ()),
        ("df -h PATH; quota -s", "probe write to /lustre/p/ckpt failed: errno=122", "df -h /lustre/p/ckpt; quota -s", ()),
        ("df -h PATH", 'File "/usr/lib/python3/torch/x.py", line 3', "df -h PATH", ("PATH, the path",)),
        ("py-spy dump --pid PID", "step 3", "py-spy dump --pid PID", ("PID, the number of the process",)),
        ("export PATH=$PATH:/opt/bin", "step 3", "export PATH=$PATH:/opt/bin", ()),
        ("grep -n nan train.log", "loss nan", "grep -n nan log.txt", ()),
        ("file FILE", "Error opening '/data/de/10_11.flac': Format not recognised", "file /data/de/10_11.flac", ()),
        ("head FILE", "Extra data: line 1 column 3 [part-0093.jsonl:118204]", "head FILE", ("FILE, the path of part-0093.jsonl",)),
        ("lspci -s PCI", "a GPU 0018:01:00 waits for a reset", "lspci -s 0018:01:00", ()),
        ("getent hosts RDZV_HOST", "the rendezvous host n0 resolves to 127.0.1.1", "getent hosts n0", ()),
        ("kill OTHER_PID", "fuser shows PID 8841 on the device", "kill 8841", ()),
        ("f([TheClass])", "refuses an object numpy.core.multiarray._reconstruct in the checkpoint", "f([numpy.core.multiarray._reconstruct])", ()),
        ("hf download DATASET", "429 for url: https://hub.example/api/datasets/org/web/paths-info/0f0390", "hf download org/web", ()),
        ("ip addr del ADDRESS/24 dev IFACE", "a and b have the same address 10.0.3.2 (rdma3)", "ip addr del 10.0.3.2/24 dev rdma3", ()),
    ],
)  # fmt: skip
def test_a_command_is_filled_from_the_evidence(
    eight: Diagnosis, command: str, line: str, told: str, left: tuple[str, ...]
) -> None:
    incident = replace(eight, host="gpu-a17", first_line=FirstLine("log.txt", 1, line))
    assert fill_command(command, incident) == (told, left)


def test_what_was_pasted_is_no_file_to_read(eight: Diagnosis) -> None:
    incident = replace(eight, first_line=FirstLine(PASTED, 1, "loss nan"))
    assert fill_command("grep -n nan train.log", incident) == (
        "grep -n nan train.log",
        ("train.log, the log of the whole run",),
    )


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("$ docker run --gpus all --rm -it -v $(pwd):/m -w /m mmdet:cu101 python t.py", "mmdet:cu101"),
        ("docker run -d -p 23456:23456 -v /home:/home nvcr.io/nvidia/pytorch:23.06-py3", "nvcr.io/nvidia/pytorch:23.06-py3"),
        ("docker run --add-host store:10.0.0.1 trainer:1.4", "trainer:1.4"),
        ("docker run a:1\ndocker run b:2", None),
        ("docker run --gpus all trainer", None),
    ],
)  # fmt: skip
def test_an_image_is_named_by_the_command_that_started_it(text: str, image: str | None) -> None:
    assert find_names(text).get("image") == image


@pytest.mark.parametrize(
    ("host", "schedulers", "told"),
    [
        ("llm-worker-0", ("kubernetes",), "kubectl logs llm-worker-0"),
        ("llm-worker-0", (), "kubectl logs POD"),
        ("ip-10-1-44-7", ("kubernetes",), "kubectl logs POD"),
    ],
)
def test_a_host_called_as_a_pod_is_the_pod(
    eight: Diagnosis, host: str, schedulers: tuple[str, ...], told: str
) -> None:
    incident = replace(eight, host=host, schedulers=schedulers, named={})
    assert fill_command("kubectl logs POD", incident)[0] == told


@pytest.mark.parametrize(
    ("command", "handed_in", "kept"),
    [
        ("scontrol update NodeName=n1 State=DRAIN\nkubectl cordon n1\nkubectl delete pod POD", (), "scontrol update NodeName=n1 State=DRAIN\nkubectl cordon n1"),
        ("scontrol update NodeName=NODE State=DRAIN\nscontrol requeue JOBID", (), "scontrol update NodeName=NODE State=DRAIN"),
        ("kubectl cordon NODE\nkubectl delete pod POD", (), "kubectl cordon NODE"),
        ("az network nsg rule create\ngcloud compute firewall-rules create", (), "az network nsg rule create\ngcloud compute firewall-rules create"),
        ("az network nsg rule create\ngcloud compute firewall-rules create", ("gcloud",), "gcloud compute firewall-rules create"),
        ("iptables -I INPUT\naz network nsg rule create", (), "iptables -I INPUT"),
        ("iptables -I INPUT\naz network nsg rule create", ("az",), "az network nsg rule create"),
    ],
)  # fmt: skip
def test_a_fix_asks_for_no_second_name_and_for_no_other_cloud(
    eight: Diagnosis, command: str, handed_in: tuple[str, ...], kept: str
) -> None:
    incident = replace(eight, schedulers=(), handed_in=handed_in)
    assert keep_first_step(command, incident) == kept
