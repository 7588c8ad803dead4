"""Does an answer with a calculation carry the address that opens the calculator with the same settings, beside its words?"""

from __future__ import annotations

from urllib.parse import parse_qs

import pytest

from firstfault.conversation.rules import answer_once
from firstfault.conversation.what_if import link_what_if
from firstfault.conversation.written import write_answer
from firstfault.incidents.events import AnswerPart, ToolUse
from firstfault.workspace import Workspace

OOM = (
    "model: Llama-3-8B, LoRA, batch 4, sequence 2048, one T4\n"
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
    "GPU 0 has a total capacity of 14.56 GiB of which 1.02 GiB is free.\n"
)


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


def settings_of(part: AnswerPart) -> dict[str, str]:
    return {k: v[0] for k, v in parse_qs(link_what_if(part.tool).removeprefix("?")).items()}


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("32 stages, 128 micro-batches: how large is the bubble?", {"tool": "bubble", "stages": "32", "microbatches": "128"}),
        ("how many microbatches for less than 5% bubble with 8 stages", {"tool": "bubble", "stages": "8", "microbatches": "133"}),
        ("interleaved, pp 4, m 16, vpp 3: bubble?", {"tool": "bubble", "schedule": "interleaved", "virtual": "3"}),
        ("does llama-3-8b fit on 8 H100 with fsdp?", {"tool": "memory", "model": "llama-3-8b", "world": "8"}),
        ("does a 13B model fit on 8 A100-80GB with fsdp?", {"tool": "memory", "billions": "13", "card": "A100-80GB"}),
        ("how often should we save with 1024 GPUs, a save takes 60 s and it fails every 8 hours?", {"tool": "checkpoint_interval", "save_seconds": "60"}),
    ],
)  # fmt: skip
def test_a_calculation_can_be_opened(
    question: str, wanted: dict[str, str], workspace: Workspace
) -> None:
    part = answer_once(question, None, workspace.knowledge)
    assert "](" not in part.text
    assert settings_of(part).items() >= {"view": "what-if", **wanted}.items()
    assert link_what_if(part.tool) in write_answer(part), "a terminal has it in a line of its own"


def test_steps_against_a_shortage_can_be_opened(workspace: Workspace) -> None:
    diagnosis = workspace.diagnose_text("log.txt", OOM.encode())
    question = "what first, second, third? 8B with LoRA, batch 4, sequence 2048, on a T4"
    part = answer_once(question, diagnosis, workspace.knowledge)
    assert part.kind == "incident.steps"
    assert "](" not in part.text
    assert settings_of(part).items() >= {"tool": "memory", "card": "T4", "sequence": "2048"}.items()


def test_what_the_page_cannot_show_has_no_address(workspace: Workspace) -> None:
    assert link_what_if(None) == ""
    assert link_what_if(ToolUse("mfu", {"gpus": 8}, {})) == ""
    part = answer_once("MFU of a 7B model at 4000 tokens/s per GPU on H100?", None, workspace.knowledge)  # fmt: skip
    assert part.tool is not None
    assert "What if" not in write_answer(part)
    assert "other settings" not in write_answer(part)
