"""What a command is said to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.rows import each_row

from firstfault.ui.effects import LOOKS, Effect, judge_command, only_looks, split_look
from firstfault_tools.knowledge.pack import read_yaml

KNOWLEDGE = Path(__file__).parent.parent.parent.parent / "knowledge"
ROWS = [
    ("dmesg -T | grep -iE 'xid|nvrm'", Effect.READS),
    ("nvidia-smi -q -d ECC,ROW_REMAPPER", Effect.READS),
    ("srun --ntasks-per-node=1 bash -c 'hostname; ulimit -l'", Effect.READS),
    ("sacct -j 1 --format=JobID,State", Effect.READS),
    ("nvidia-smi --gpu-reset -i 3", Effect.CHANGES),
    ("sudo systemctl restart nvidia-fabricmanager", Effect.CHANGES),
    ("rm -rf /scratch/old", Effect.CHANGES),
    ("kubectl drain node-7", Effect.CHANGES),
    ("pip install -U torch", Effect.CHANGES),
    ("echo 1 > /proc/sys/vm/drop_caches", Effect.CHANGES),
    ("TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun train.py", Effect.STARTS),
    ("ss -ltnp | grep 29500; pgrep -af torchrun", Effect.READS),
    ("ib_write_bw -d mlx5_0 -x 3 peer", Effect.LOADS),
    ("ok = torch.tensor(1.0); dist.all_reduce(ok)", Effect.CODE),
    ("for g in opt.param_groups: g['lr'] *= 0.3   # after the checkpoint was loaded", Effect.CODE),
    ("for h in a b; do ssh $h dmesg; done", Effect.READS),
    ("# Megatron\n--micro-batch-size 1", Effect.SETTING),
    ("tail -n 50 worker-*<pid>*.err; grep -n <pid> /tmp/ray/session_latest/logs/raylet.out", Effect.READS),
    ("stat -c '%i %y %n' /mnt/nfs/shard-00918.tar; mount | grep -E 'nfs|lustre|fuse'", Effect.READS),
    ("mount -t nfs4 | grep data", Effect.READS),
    ("mount /dev/sdb1 /mnt", Effect.UNCLEAR),
    ("echo <pid> > /tmp/pid", Effect.CHANGES),
    ("py-spy dump --pid <pid> >/tmp/stack.txt", Effect.CHANGES),
    ("frobnicate --all", Effect.UNCLEAR),
    ("systemctl status nvidia-fabricmanager; nv-fabricmanager --version", Effect.READS),
    ("ray start --object-store-memory=20000000000 --num-cpus=16", Effect.STARTS),
    ("ray status; ray memory", Effect.READS),
]  # fmt: skip


@each_row(("command", "effect"), ROWS)
def test_effect(command: str, effect: Effect) -> None:
    assert judge_command(command) is effect


def test_a_page_that_says_it_changes_state_is_believed() -> None:
    assert judge_command("nvidia-smi", changes_state=True) is Effect.CHANGES


def test_of_a_fix_whose_command_is_the_look_before_it_the_command_is_told() -> None:
    assert only_looks("du --inodes -xd2 /lustre/proj | sort -n | tail", changes_state=True)
    assert not only_looks("rm -r /lustre/proj/old", changes_state=True)
    assert not only_looks("du -sh /lustre/proj", changes_state=False)


def test_every_effect_has_icon_and_word() -> None:
    assert set(LOOKS) == set(Effect)


def commands() -> Iterator[str]:
    for file in sorted(KNOWLEDGE.rglob("*.yaml")):
        data = read_yaml(file.read_text(encoding="utf-8"))
        for entry in data.get("next") or () if isinstance(data, dict) else ():
            yield entry["command"]


def test_commands_that_change_something_are_never_called_read_only() -> None:
    risky = ("rm ", "reset", "restart", "install", "kill ", "reboot", "scancel", "torchrun ")
    found = list(commands())
    assert len(found) > 30
    wrong = [c for c in found if any(w in c for w in risky) and judge_command(c) is Effect.READS]
    assert wrong == []


SPLIT = [
    ("ps -o user,pid,lstart,cmd -p 12\nkill -TERM 12", "ps -o user,pid,lstart,cmd -p 12"),
    ("cat /proc/version; ldconfig -p | grep libcuda.so\nsudo systemctl reboot", "cat /proc/version; ldconfig -p | grep libcuda.so"),
    ("kill -TERM 12\nps -p 12", ""),
    ("nvidia-smi\ndf -h", ""),
    ("scontrol update NodeName=n1 State=DRAIN", ""),
    ("dmesg -T \\\n  | tail\nsudo reboot", ""),
    ("ldconfig\nsudo reboot", ""),
]  # fmt: skip


@each_row(("command", "look"), SPLIT)
def test_what_is_looked_at_first_is_copied_apart(command: str, look: str) -> None:
    first, then = split_look(command)
    assert first == look
    assert "\n".join(x for x in (first, then) if x) == command
