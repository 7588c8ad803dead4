"""A site of hosts that answer, delay, fail and lie: stands in for ssh, srun, kubectl, squeue, scontrol.

SITE names a JSON file: {"hosts": {name: {"ranks": [0, 1], "world": 4, "acts": {program: act}}}}.
An act of "*" counts for every program. Every command line is appended to SITE.log.
"""

import json
import os
import shlex
import sys
import time

SECRET = "hf_" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z"
LOG = "step {step} loss 2.1\n[rank{rank}] waiting\n"
STACK = 'Process {pid}: python train.py\nPython v3.11.4\n\nThread {pid} (idle): "MainThread"\n    {leaf} (train.py:{line})\n    <module> (train.py:90)\n'


def read_hosts() -> dict:
    with open(os.environ["SITE"]) as file:
        return json.load(file)["hosts"]


def act(host: str, how: str, program: str) -> None:
    if how == "hang":
        time.sleep(600)
    elif how == "hang-on-with-child":
        if os.fork() == 0:
            time.sleep(600)
    elif how == "slow":
        time.sleep(0.4)
    elif how == "255":
        sys.stderr.write(f"ssh: connect to host {host} port 22: No route to host\n")
        sys.exit(255)
    elif how == "huge":
        while True:
            os.write(1, b"x" * 65535 + b"\n")
    elif how == "bytes":
        os.write(1, b"\xff\xfe\x00step 12 \x80\n")
        sys.exit(0)
    elif how == "fails":
        sys.stderr.write(f"{program}: not permitted\n")
        sys.exit(1)
    elif how == "silent":
        sys.exit(0)
    elif how.startswith("says:"):
        print(how[5:])
        sys.exit(0)


def answer(name: str, argv: list[str]) -> None:
    host = read_hosts().get(name)
    if host is None:
        sys.exit(1)
    program = argv[0]
    acts = host.get("acts", {})
    act(name, acts.get(program, acts.get("*", "")), program)
    pids = {100 + rank: rank for rank in host.get("ranks", [])}
    text = " ".join(argv)
    asked = [pid for pid in pids if f"/proc/{pid}/" in text or str(pid) in argv]
    if program == "uname":
        print(name)
    elif program == "ps" and "pid=,etimes=,args=" in argv:
        print("    1     0 /sbin/init")
        print("   50     1 python -m torch.distributed.run train.py")
        for pid in pids:
            print(f"  {pid}    50 /usr/bin/python3 train.py --lr 1")
    elif program == "grep" and "environ" in text:
        for pid in asked:
            for entry in (
                f"RANK={pids[pid]}", f"WORLD_SIZE={host.get('world', 4)}", f"HF_TOKEN={SECRET}",
                "NCCL_DEBUG=INFO", "UNRELATED=private matter",
            ):  # fmt: skip
                sys.stdout.write(f"/proc/{pid}/environ:{entry}\0")
    elif program == "find" and "/proc/self/stat" in argv:
        print("1000.0 /proc/self/stat")
    elif program == "find":
        for pid in asked:
            print(f"/proc/{pid}/fd/1 /logs/it's rank {pids[pid]}.log")
            print(f"/proc/{pid}/fd/2 pipe:[4711]")
    elif program == "tail":
        rank = int(argv[-1].split("rank ")[1].split(".")[0])
        print(f"export HF_TOKEN={SECRET}")
        sys.stdout.write(LOG.format(step=40 + rank, rank=rank))
    elif program == "py-spy":
        pid = int(argv[-1])
        late = pids[pid] == 1
        print(STACK.format(pid=pid, leaf="load" if late else "all_reduce", line=12 if late else 40))
    elif program == "df":
        print("Filesystem Type 1024-blocks Used Available Capacity Mounted on")
    else:
        sys.stderr.write(f"{program}: command not found\n")
        sys.exit(127)


def bare(argv: list[str]) -> list[str]:
    """The command behind `timeout -k 2 N`."""
    return argv[4:] if argv[:2] == ["timeout", "-k"] else argv


def main(called: str, argv: list[str]) -> None:
    with open(os.environ["SITE"] + ".log", "a") as log:
        log.write(json.dumps([called, *argv]) + "\n")
    if called == "ssh":
        at = argv.index("--")
        answer(argv[at + 1], bare(shlex.split(" ".join(argv[at + 2 :]))))
    elif called == "srun":
        node = next(a for a in argv if a.startswith("--nodelist=")).partition("=")[2]
        answer(node, bare(argv[argv.index("--quiet") + 1 :]))
    elif called == "kubectl" and argv[0] == "exec":
        at = argv.index("--")
        pod = next(a for a in argv[1:at] if not a.startswith("-"))
        answer(pod, bare(argv[at + 1 :]))
    elif called == "kubectl" and argv[0] == "get":
        print("\n".join(f"pod/{n}" for n in read_hosts()))
    elif called == "kubectl" and argv[0] == "logs":
        print(f"{argv[1]} step 41 loss 2.0")
    elif called == "squeue":
        print("gpu[1-2]")
    elif called == "scontrol" and argv[1] == "hostnames":
        print("\n".join(read_hosts()))
    else:
        sys.exit(1)
