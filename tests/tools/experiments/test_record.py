"""The record: written and read back, in an incident, and what it makes of other findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault_tools.correlation.decisions import Trail
from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.experiments.experiment import About, Design, Result
from firstfault_tools.experiments.kinds import Kind, Verdict
from firstfault_tools.experiments.reading import READER
from firstfault_tools.experiments.record import find_says, read_record, write_record
from firstfault_tools.experiments.trial import Outcome, Trial
from firstfault_tools.experiments.weighing import weigh_experiments
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.registry import Artefact

TRIALS = [Trial(("n1", "n2"), Outcome.FAILED, 1, 2.0, "exit code 1", ("boom",))]
HOST = Result(Verdict.SUPPORTED, "host n1 carries the fault: 1 of 1", ("n1",), "host", 0.99, 1, 1.0)
REFUTED = Result(Verdict.REFUTED, "0 of 9 trials failed", (), "", None, 9, 8.0)
SUPPORTED = Result(Verdict.SUPPORTED, "9 of 9 trials failed", ("x",), "", None, 9, 8.0)


def read(tmp_path: Path, kind: Kind, result: Result, about: About = About()) -> Finding:  # noqa: B008
    design = Design(kind, "the hypothesis", "it fails", ("run", "--token=abc"), ("n1", "n2"), about)
    path = tmp_path / "experiment-1.json"
    path.write_text(write_record("1", design, TRIALS, result))
    artefact = Artefact(path.name, path)
    assert READER.recognise(path.name, artefact.head())
    (finding,) = READER.read((artefact,)).findings
    number, line = find_says(path.read_text())
    assert (finding.evidence[0].line, finding.evidence[0].text) == (number, line[:400])
    return finding


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    design = Design(Kind.HOSTS, "h", "p", ("run",), ("n1", "n2"), About("cause", "kind", Category.OOM))  # fmt: skip
    record = read_record(write_record("7", design, TRIALS, HOST), "x")
    assert (record.name, record.kind, record.about, record.result) == ("7", Kind.HOSTS, design.about, HOST)  # fmt: skip
    for text in ("{", "{}", "[]", '{"schema": "firstfault.experiment/1"}'):
        with pytest.raises(UnreadableArtefact, match=r"experiment-1\.json"):
            read_record(text, "experiment-1.json")


@pytest.mark.parametrize(
    ("kind", "result", "about", "expected"),
    [
        (Kind.HOSTS, HOST, About(), ("experiment.host", Level.FAILURE, Category.HARDWARE, "n1")),
        (Kind.PAIRS, HOST, About(), ("experiment.path", Level.FAILURE, Category.COMMUNICATION, "n1")),
        (Kind.TEST, REFUTED, About(), ("experiment.refuted", Level.CONTEXT, None, None)),
        (Kind.TEST, SUPPORTED, About(category=Category.OOM), ("experiment.supported", Level.FAILURE, Category.OOM, None)),
        (Kind.TEST, SUPPORTED, About("x", "", Category.OOM), ("experiment.supported", Level.CONTEXT, Category.OOM, None)),
        (Kind.COMMITS, HOST, About(), ("experiment.commit", Level.FAILURE, Category.CODE_BUG, "n1")),
    ],
)  # fmt: skip
def test_what_a_result_is_in_an_incident(tmp_path: Path, kind: Kind, result: Result, about: About, expected: tuple[object, ...]) -> None:  # fmt: skip
    found = read(tmp_path, kind, result, about)
    assert (found.kind, found.level, found.category, found.host) == expected


def other(title: str, level: Level, confidence: Confidence, host: str | None = None) -> Finding:
    return Finding("signature.x", title, level, Category.HARDWARE, confidence, (Evidence("log", 1, "a"),), host=host)  # fmt: skip


SURE, LIKELY, POSSIBLE = Confidence.CONFIRMED, Confidence.LIKELY, Confidence.POSSIBLE


@pytest.mark.parametrize(
    ("kind", "result", "about", "before", "after"),
    [
        (Kind.TEST, REFUTED, About("a broken cable"), other("A broken cable.", Level.CAUSE, LIKELY), (Level.CONTEXT, LIKELY)),
        (Kind.TEST, REFUTED, About("a broken cable"), other("a broken cable", Level.CAUSE, SURE), (Level.CAUSE, LIKELY)),
        (Kind.TEST, REFUTED, About("a broken cable"), other("a full disk", Level.CAUSE, LIKELY), (Level.CAUSE, LIKELY)),
        (Kind.TEST, REFUTED, About("", "signature.x"), other("a full disk", Level.CAUSE, LIKELY), (Level.CONTEXT, LIKELY)),
        (Kind.TEST, SUPPORTED, About("a broken cable"), other("a broken cable", Level.SYMPTOM, POSSIBLE), (Level.FAILURE, LIKELY)),
        (Kind.HOSTS, HOST, About(), other("Xid 79", Level.CAUSE, LIKELY, "n1"), (Level.CAUSE, LIKELY)),
    ],
    ids=["refuted", "refuted, proven by a line", "another one", "by its kind", "supported", "at the host"],
)  # fmt: skip
def test_what_it_makes_of_other_findings(
    tmp_path: Path, kind: Kind, result: Result, about: About, before: Finding, after: tuple[Level, Confidence],
) -> None:  # fmt: skip
    trail = Trail()
    trial = read(tmp_path, kind, result, about)
    weighed, seen = weigh_experiments([before, trial], trail)
    assert (weighed.level, weighed.confidence) == after
    changed = weighed is not before
    assert bool(trail.decisions) is changed
    if kind is Kind.HOSTS:
        # the cause at that host leads and quotes the experiment, which is not told a second time
        assert trial.evidence[0] in weighed.evidence
        assert seen.level is Level.CONTEXT
    assert weigh_experiments([before], Trail()) == [before]
