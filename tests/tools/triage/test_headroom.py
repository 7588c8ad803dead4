"""What is nearly full is said, what is not is not."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.triage.headroom import read_headroom

ROWS = [
    ("memory", "MemTotal:  1000000 kB\nMemFree: 5 kB\nMemAvailable:  20000 kB\n", "0.0 of 1.0 GiB are left"),
    ("memory", "MemTotal:  1000000 kB\nMemAvailable:  200000 kB\n", ""),
    ("memory", "MemTotal: many", ""),
    ("cgroup", "/sys/fs/cgroup/memory.max:1073741824\n/sys/fs/cgroup/memory.current:1073000000\n", "1.0 of the container's 1.0 GiB"),
    ("cgroup", "/sys/fs/cgroup/memory.max:max\n/sys/fs/cgroup/memory.events:oom_kill 0\n", ""),
    ("cgroup", "/sys/fs/cgroup/memory.events:oom_kill 3\n", "killed 3 processes"),
    ("disk", "/dev/sda1 ext4 1000000 990000 10000 99% /\nshm tmpfs 100 1 99 1% /dev/shm\n", "/ is 99 % full"),
    ("disk", "/dev/loop0 squashfs 100 100 0 100% /snap\n", ""),
    ("checkpoints", "2026-01-02T03:04:05.0000000000 9 /c/a\n2026-01-03T03:04:05.0000000000 9 /c/b\n", "/c/b, written 2026-01-03T03:04:05"),
    ("checkpoints", "nothing\n", "holds none"),
]  # fmt: skip


@each_row(("step", "text", "said"), ROWS)
def test_headroom(step: str, text: str, said: str) -> None:
    notes = list(read_headroom(step, text))
    assert len(notes) == bool(said)
    assert said in "".join(notes)
