"""An incident for the agent: settings of its own, a log with an out-of-memory fault, a question about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from firstfault.agent.answerer import AgentAnswerer
from firstfault.agent.enrich import make_question
from firstfault.agent.store import open_store
from firstfault.conversation.answerer import Question
from firstfault.settings import Settings
from firstfault.workspace import Workspace

LOG = """\
[rank0]: step 1 loss 2.5
[rank1]: step 1 loss 2.5
[rank0]: step 2 loss 2.4
[rank1]: step 2 loss 2.4
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/alice/run/train.py", line 40, in <module>
[rank1]:     loss.backward()
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 14.00 GiB. GPU 1 has a total capacity of 79.10 GiB of which 3.27 GiB is free.
{planted}
[rank0]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.
[rank0]: contact 10.1.2.3 on host trainnode-0042 for more
"""
PADDING = "\n".join(
    f"[rank0]: waits for the {n}. time and has nothing to say but that" for n in range(240)
)
"""So much that the log is not shown whole, and the tools that read lines are offered."""
MakeQuestion = Callable[..., Question]


@pytest.fixture(scope="session", autouse=True)
def loaded() -> None:
    """The client's libraries take long to load, which is none of the time that a test gives a turn."""
    import langchain.agents.middleware  # noqa: F401
    import langchain_openai  # noqa: F401
    import langgraph.checkpoint.sqlite  # noqa: F401


@pytest.fixture(scope="session")
def workspace() -> Workspace:
    return Workspace()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data=tmp_path / "data")  # type: ignore[call-arg]


@pytest.fixture
def ask(workspace: Workspace, tmp_path: Path) -> MakeQuestion:
    """Question about the log, with `planted` put into it; name of the file may be chosen."""

    def make(
        text: str = "", planted: str = "", name: str = "train.log", long: bool = False
    ) -> Question:
        path = tmp_path / name
        log = LOG.replace("{planted}", planted or "[rank0]: step 3 waits")
        path.write_text(log + (PADDING if long else ""), "utf-8")
        diagnosis = workspace.diagnose_paths([path])
        assert diagnosis.category is not None
        assert diagnosis.category.value == "oom"
        return make_question(diagnosis, {name: path}, workspace.knowledge, text)

    return make


@pytest.fixture
def ask_long(ask: MakeQuestion) -> MakeQuestion:
    """The same about a log that is too long to be shown whole."""
    return lambda *given, **more: ask(*given, **{"long": True, **more})


@pytest.fixture
def answerer(settings: Settings) -> AgentAnswerer:
    return AgentAnswerer(settings, open_store(settings))
