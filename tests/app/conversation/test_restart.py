"""Restart here, without a node, or stop? By the kind of fault, and by what earlier attempts met."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from firstfault.conversation.answerer import Question
from firstfault.conversation.rules import RuleAnswerer
from firstfault.experiments.outcome import settle
from firstfault.incidents.events import AnswerPart
from firstfault.incidents.records import Related
from firstfault.service import NamedPath, NewIncident, Service
from firstfault.workspace import Workspace

XID = "node-07 kernel: NVRM: Xid (PCI:0000:c1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
LEAK = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of 79.10 GiB of which 1.02 GiB is free.\n"
ASKED = "Should I restart the job?"


def earlier(signature: bool, host: bool) -> Related:
    return Related("i", "earlier", 1.0, "same", signature, host, False)


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


@pytest.mark.parametrize(
    ("log", "related", "says", "never"),
    [
        (XID, (), r"^No, not with node-07", "seen "),
        (XID, [earlier(True, True)], r"seen once before on host node-07\. It came back there, so start without node-07", "stop and fix"),
        (LEAK, (), r"^No, not unchanged", "seen "),
        (LEAK, [earlier(True, False)] * 3, r"seen 3 times before\. It goes with the job .*stop and fix the cause first", "start without"),
        (LEAK, [earlier(True, False)], r"seen once before\.", "stop and fix"),
    ],
    ids=["node", "node again", "cause", "follows the job", "once is no pattern"],
)  # fmt: skip
def test_advice(
    log: str,
    related: Sequence[Related],
    says: str,
    never: str,
    workspace: Workspace,
    tmp_path: Path,
) -> None:
    path = tmp_path / "dmesg.txt"
    path.write_text(log)
    found = workspace.diagnose_paths([path])
    asked = Question("i", 2, ASKED, found, {path.name: path}, (), workspace.knowledge, related=tuple(related))  # fmt: skip
    told = next(p for p in RuleAnswerer().answer(asked) if isinstance(p, AnswerPart)).text
    assert re.search(says, told), told
    assert never not in told


def test_what_is_on_record_is_asked(idle_service: Service, tmp_path: Path) -> None:
    log = tmp_path / "dmesg.txt"
    told = ""
    for pid in (1, 2):
        log.write_text(XID.replace("<unknown>", str(pid)))
        incident = idle_service.start(NewIncident((NamedPath(log),), "the job died"))
        settle(idle_service, incident)
        turn = idle_service.ask(incident, ASKED)
        settle(idle_service, incident)
        told = idle_service.answer(incident, turn)[0].text
    assert "seen once before on host node-07" in told


def test_no_checkpoint_from_after_the_numbers_went_wrong_is_named(
    workspace: Workspace, tmp_path: Path
) -> None:
    sound = "{'loss': 1.21, 'grad_norm': 0.93, 'learning_rate': 1.9e-05, 'epoch': 0.1}\n" * 12
    broken = "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1.8e-05, 'epoch': 0.2}\n" * 12
    saved = "Saving model checkpoint to out/checkpoint-{0}\nModel weights saved in out/checkpoint-{0}/model.safetensors\n"
    path = tmp_path / "train.log"
    path.write_text(sound + saved.format(300) + sound + broken + saved.format(600) + broken)
    diagnosis = workspace.diagnose_paths([path])
    for text in (
        "Which checkpoint do I resume from?",
        "It is still running, what do I collect before I kill it?",
    ):
        asked = Question("i", 2, text, diagnosis, {path.name: path}, (), workspace.knowledge)
        said = next(RuleAnswerer().answer(asked)).text
        assert re.match(
            r"Resume from step 300 .*, not from step 600|Copy the checkpoint of step 300 ", said
        )
