"""Does an answer by rule say only what stands in evidence or pages?"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from evals.cases import find_case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstfault.conversation.answerer import Question
from firstfault.conversation.rules import RuleAnswerer
from firstfault.incidents.events import AnswerPart
from firstfault.investigation.diagnosis import CitationKind
from firstfault.workspace import Workspace
from firstfault_tools.knowledge.pack import read_yaml
from firstfault_tools.log.window import read_window

Ask = Callable[[str], AnswerPart]


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


@pytest.fixture(scope="module")
def ask(workspace: Workspace) -> Ask:
    folder = find_case("comm-ib-port-flap")
    case = read_yaml((folder / "case.yaml").read_text())
    files = {name: folder / name for name in case["inputs"]}
    diagnosis = workspace.diagnose_paths(list(files.values()))

    def put(text: str) -> AnswerPart:
        question = Question("i", 2, text, diagnosis, files, (), workspace.knowledge)
        parts = [p for p in RuleAnswerer().answer(question) if isinstance(p, AnswerPart)]
        assert len(parts) == 1
        check_citations(parts[0], files, workspace)
        return parts[0]

    return put


def check_citations(part: AnswerPart, files: dict[str, Path], workspace: Workspace) -> None:
    marks = {int(n) for n in re.findall(r"\[(\d{1,3})\]", part.text)}
    assert {c.n for c in part.citations} <= marks
    for citation in part.citations:
        if citation.kind is CitationKind.LOG:
            assert citation.file is not None
            assert citation.line is not None
            window = read_window(files[citation.file], citation.line, citation.line)
            assert " ".join(citation.quote.split()) in " ".join(window[0][1].split())
        elif citation.kind is CitationKind.PAGE:
            page = workspace.knowledge.pages[citation.page or ""]
            heading = citation.heading or ""
            section = page.section("" if heading in ("Summary", page.title) else heading)
            assert section is not None
            assert " ".join(citation.quote.split()) in " ".join(section.text.split())


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("How do I fix this?", "What helps, most urgent first"),
        ("Which host should be drained?", "The first fault lies at|singles out no rank"),
        ("How sure are you?", "Confirmed|Likely|Possible"),
        ("Could it be something else instead?", "would fit in part|No other cause"),
        ("What else should I collect?", "What would settle it|Nothing more is needed"),
        ("What happened after it?", "In order"),
        ("Why?", "mlx5_4"),
        ("What does line 7 of log.txt say?", "log.txt:7"),
        ('Where does it say "Got async event"?', "log.txt:7"),
        ("what is mlx5_4", "mlx5_4"),
        ("what is a pipeline bubble", "bubble"),
        ("Is it the network?", "Yes, that is where the evidence points"),
        ("could it be a code bug?", "No, not by this evidence"),
        ("what about rank 977?", "wrote no line|says itself"),
        ("qwer asdf?", "Neither this incident nor the pages"),
        ("/preview", "none is set"),
        ("is it healthy?", "there is a fault"),
        ("what is an OOM?", "out of memory|ran out"),
        (
            "how do I enable the flight recorder?",
            "TORCH_FR_BUFFER_SIZE",
        ),
        ("How can we avoid this?", "What helps|come back"),
    ],
)
def test_questions_find_their_answer(ask: Ask, question: str, wanted: str) -> None:
    assert re.search(wanted, ask(question).text)


def test_a_line_that_is_not_there_is_not_invented(ask: Ask) -> None:
    assert "log.txt:999999" not in ask("what is in line 999999 of log.txt").text


def test_the_same_question_has_the_same_answer(ask: Ask) -> None:
    assert ask("how do I fix mlx5_4?") == ask("how do I fix mlx5_4?")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(st.text(min_size=1, max_size=200))
def test_any_question_gets_an_answer_that_holds(ask: Ask, text: str) -> None:
    assert ask(text).text


def test_evidence_cannot_break_out_of_its_block(workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_text("RuntimeError_7 ``` <script>alert(1)</script>\n")
    diagnosis = workspace.diagnose_paths([file])
    question = Question(
        "i", 2, "RuntimeError_7", diagnosis, {"x.log": file}, (), workspace.knowledge
    )
    part = next(p for p in RuleAnswerer().answer(question) if isinstance(p, AnswerPart))
    block = part.text.split("```text")[1].split("\n  ```")[0]
    assert "<script>" in block


def test_a_victim_is_told_from_the_culprit_by_its_own_lines(workspace: Workspace) -> None:
    log = find_case("public-comm-27-per-rank-continue-skips-backward") / "log.txt"
    diagnosis = workspace.diagnose_paths([log])

    def put(text: str) -> str:
        question = Question("i", 2, text, diagnosis, {"log.txt": log}, (), workspace.knowledge)
        part = next(p for p in RuleAnswerer().answer(question) if isinstance(p, AnswerPart))
        check_citations(part, {"log.txt": log}, workspace)
        return part.text

    victim = put("Why did rank 3 die?")
    assert "at rank 5, not at rank 3" in victim
    assert re.findall(r"^- (?:\w+: )?(log\.txt:\d+)", victim, re.M) == ["log.txt:10"]
    assert put("why did rank 5 fail?").startswith("Rank 5 is where it began")
    assert "wrote no line" in put("and rank 99?")
    assert "singles out no GPU" in put("which GPU was it?")
