"""A question about an incident is answered by what it asks, and not by a word that it holds."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from firstfault.conversation.answerer import Question
from firstfault.conversation.rules import RuleAnswerer
from firstfault.workspace import Workspace

BAD_NODE = """\
2025-09-03 12:02:10,000 [operator] job moe: 4 workers x 8 GPU (world_size 32), backoffLimit=2
 [2025-09-03 14:17:31] iteration    240/ 5000 | elapsed time per iteration (ms): 6195.7 | lm loss: 2.1
 [2025-09-03 14:18:33] iteration    250/ 5000 | elapsed time per iteration (ms): 6195.7 | lm loss: 2.1
2025-09-03 14:18:33,900 [worker-0] saving checkpoint at iteration     250 to /ckpt/moe in torch_dist format
2025-09-03 14:19:11,000 [worker-0]   successfully saved checkpoint from iteration     250 to /ckpt/moe
 [2025-09-03 14:20:13] iteration    260/ 5000 | elapsed time per iteration (ms): 6195.7 | lm loss: 2.1
Sep 03 14:21:52 gpu-p3-12 kernel: [604339.771100] NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[rank21]:[E903 14:21:54.118442071 ProcessGroupNCCL.cpp:1515] [PG 3 Rank 5] Process group watchdog thread terminated with exception: CUDA error: unspecified launch failure
2025-09-03 14:23:02,000 [operator] restarting job moe (restart 1/2); pods keep nodes: worker-2 -> gpu-p3-12
[worker-2] 2025-09-03 14:24:19,000 [rank21] RuntimeError: CUDA error: invalid device ordinal
2025-09-03 14:28:31,000 [operator] restarting job moe (restart 2/2); pods keep nodes: worker-2 -> gpu-p3-12
[worker-2] 2025-09-03 14:29:48,000 [rank21] RuntimeError: CUDA error: invalid device ordinal
2025-09-03 14:31:52,000 [operator] job moe Failed: backoffLimit exceeded (2 restarts). 32 GPUs released
"""
FILLS = "".join(
    f"2026-01-20 18:{n:02}:00,000 [rank0][node-a17] step {n}00 loss 1.9 | 2.6 s/step | gpu mem max 58.3/79.1 GiB | host mem (cgroup) {210 + 9 * n}.0/480.0 GiB\n"
    for n in range(1, 30)
) + (
    "Jan 20 18:30:23 node-a17 kernel: [3310021.441200] Memory cgroup out of memory: Killed process 48817 (pt_data_worker) "
    "total-vm:61203400kB, anon-rss:5134012kB, file-rss:92100kB, shmem-rss:10240kB, UID:1000\n"
    "2026-01-20 18:30:24,000 [rank6][node-a17] RuntimeError: DataLoader worker (pid 48817) is killed by signal: Killed.\n"
)


@pytest.mark.parametrize(
    ("log", "question", "said"),
    [
        (BAD_NODE, "why did both restarts fail too", r"gpu-p3-12 again(?s:.*)All 2 ended the same way"),
        (BAD_NODE, "how many gpu hours did it cost", r"since the checkpoint of step 250"),
        (BAD_NODE, "how do I verify the fix before i burn another hour", r"^It is fixed when(?s:.*)Must not come again"),
        (FILLS, "is this a gpu oom?", r"^No\. It is the memory of the host(?s:.*)58\.3 of 79\.1"),
        (FILLS, "can i just set --mem=900G and go on?", r"^No, that only delays it: At that rate 900 GiB are full at about step"),
        (FILLS, "which commit added the cache? and who", r"^The evidence does not say"),
    ],
)  # fmt: skip
def test_what_is_asked_is_answered(
    ask_of_log: Callable[[str, str], str], log: str, question: str, said: str
) -> None:
    text = ask_of_log(log, question)
    assert re.search(said, text), text


def test_a_term_of_the_field_does_not_make_a_question_one_of_it(known_workspace: Workspace) -> None:
    text = "my knee hurts after sitting 10h at the desk debugging nccl, what can i take"
    question = Question("q", 1, text, None, {}, (), known_workspace.knowledge)
    assert next(iter(RuleAnswerer().answer(question))).kind.startswith("none")
