"""Does the door do what it says? From acceptance to deletion, on both databases."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from evals.cases import find_case

from firstfault import reading
from firstfault.errors import IncidentNotFound, InputUnreadable, UsageError
from firstfault.incidents.events import (
    AnswerPart,
    EventKind,
    Failed,
    Progress,
    Received,
    RelatedFound,
    VerdictReached,
)
from firstfault.incidents.records import IncidentState, Origin
from firstfault.investigation.diagnosis import CitationKind
from firstfault.investigation.headline import say_plainly
from firstfault.postmortem.markdown import write_markdown
from firstfault.service import NamedPath, NewIncident, PastedText, Service, Upload, open_service
from firstfault.settings import WorkerMode
from firstfault_tools.findings import Category, Verdict
from firstfault_tools.knowledge.pack import read_yaml
from firstfault_tools.log import progress

FLAP = find_case("comm-ib-port-flap")
OOM = """[rank3]: Traceback (most recent call last):
[rank3]:   File "/srv/train.py", line 90, in step
[rank3]:     y = layer(x)
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.11 GiB of which 1.06 GiB is free.
"""  # fmt: skip


def paste(text: str, question: str = "", name: str = "pasted.txt") -> NewIncident:
    return NewIncident((PastedText(text, name),), question)


def settle(service: Service, incident: str) -> list[EventKind]:
    kinds = [e.kind for e in service.follow(incident, timeout=60)]
    assert service.incident(incident).state.is_final
    return kinds


def test_an_incident_runs_from_paste_to_verdict(service: Service) -> None:
    incident = service.start(paste(OOM, "Why did rank 3 die?"))
    kinds = settle(service, incident)
    assert kinds[0] is EventKind.RECEIVED
    assert kinds[-1] is EventKind.DONE
    assert kinds.count(EventKind.PHASE) == 5
    assert kinds.index(EventKind.RECEIPT) < kinds.index(EventKind.PHASE) < kinds.index(EventKind.VERDICT)  # fmt: skip
    diagnosis = service.diagnosis(incident)
    assert diagnosis is not None
    assert diagnosis.category is Category.OOM
    assert service.incident(incident).category is Category.OOM
    verdict = next(e.body for e in service.events(incident) if e.kind is EventKind.VERDICT)
    assert isinstance(verdict, VerdictReached)
    assert verdict.diagnosis == diagnosis
    window = service.window(incident, "pasted.txt", 4, around=1)
    assert [n for n, _ in window.lines] == [3, 4]
    page = next(c for c in diagnosis.citations if c.kind is CitationKind.PAGE)
    assert page.page is not None
    passage = service.passage(page.page, page.heading or "")
    assert " ".join(page.quote.split()) in " ".join(passage.text.split())


def test_a_key_starts_one_incident_and_one_turn(idle_service: Service) -> None:
    first = idle_service.start(paste(OOM), key="tab-1")
    assert idle_service.start(paste("something else"), key="tab-1") == first
    assert idle_service.start(paste(OOM), key="tab-2") != first
    turn = idle_service.ask(first, "why?", key="q")
    assert idle_service.ask(first, "why?", key="q") == turn
    assert idle_service.ask(first, "why?") == turn + 1
    assert len(idle_service.turns(first)) == 3


def test_what_is_accepted_waits_for_a_worker(idle_service: Service) -> None:
    incident = idle_service.start(paste(OOM))
    assert [e.kind for e in idle_service.follow(incident, timeout=0.2)] == [EventKind.RECEIVED]
    assert idle_service.incident(incident).state is IncidentState.QUEUED
    with open_service(idle_service.settings.model_copy(update={"worker": WorkerMode.THREAD})) as other:  # fmt: skip
        assert settle(other, incident)[-1] is EventKind.DONE
    assert idle_service.diagnosis(incident) is not None


def test_two_people_follow_the_same_events(service: Service) -> None:
    incident = service.start(paste(OOM))
    with open_service(service.settings, workers=False) as second:
        mine = list(service.follow(incident, timeout=60))
        theirs = list(second.follow(incident, timeout=60))
    assert mine == theirs
    assert [e.seq for e in mine] == list(range(1, len(mine) + 1))
    assert service.events(incident, after=mine[-2].seq) == (mine[-1],)


def test_a_question_is_answered_from_evidence_and_pages(service: Service) -> None:
    incident = service.start(NewIncident((NamedPath(FLAP / "log.txt"), NamedPath(FLAP / "dmesg.txt"))))  # fmt: skip
    settle(service, incident)
    turn = service.ask(incident, "How do I fix mlx5_4, and what does it say?")
    settle(service, incident)
    part = service.answer(incident, turn)[0]
    assert "mlx5_4" in part.text
    assert {c.kind for c in part.citations} == {CitationKind.LOG, CitationKind.PAGE}
    for citation in part.citations:
        assert f"[{citation.n}]" in part.text
        if citation.kind is CitationKind.LOG:
            assert citation.file is not None
            assert citation.line is not None
            lines = dict(service.window(incident, citation.file, citation.line, 0).lines)
            assert " ".join(citation.quote.split()) in " ".join(lines[citation.line].split())


def test_a_bare_question_is_answered_from_the_pages(service: Service) -> None:
    incident = service.start(NewIncident(question="What does NCCL watchdog timeout mean?"))
    settle(service, incident)
    assert service.diagnosis(incident) is None
    part = service.answer(incident, 1)[0]
    assert part.citations
    assert all(c.kind is CitationKind.PAGE for c in part.citations)


def test_more_evidence_is_diagnosed_with_what_was_there(service: Service) -> None:
    incident = service.start(NewIncident((NamedPath(FLAP / "log.txt"),)))
    settle(service, incident)
    service.add_evidence(incident, [NamedPath(FLAP / "dmesg.txt")], "kernel log of gpu-c17")
    settle(service, incident)
    diagnosis = service.diagnosis(incident)
    assert diagnosis is not None
    assert set(diagnosis.input.files) == {"log.txt", "dmesg.txt"}
    verdicts = [e for e in service.events(incident) if e.kind is EventKind.VERDICT]
    assert [v.turn for v in verdicts] == [1, 2]


def test_archives_are_read_and_their_lines_can_be_opened(service: Service) -> None:
    incident = service.start(NewIncident((Upload("rank3.log.gz", gzip.compress(OOM.encode())),)))
    settle(service, incident)
    diagnosis = service.diagnosis(incident)
    assert diagnosis is not None
    assert diagnosis.first_line is not None
    window = service.window(incident, diagnosis.first_line.file, diagnosis.first_line.line, 0)
    assert "out of memory" in window.lines[0][1]


def test_earlier_incidents_like_this_one_are_named(service: Service) -> None:
    first = service.start(paste(OOM))
    settle(service, first)
    second = service.start(paste(OOM + "\n"))
    settle(service, second)
    assert service.related(first) == ()
    assert [r.id for r in service.related(second)] == [first]
    event = next(e for e in service.events(second) if e.kind is EventKind.RELATED)
    assert isinstance(event.body, RelatedFound)
    assert "seen once" in event.body.summary


def test_the_same_log_read_again_is_no_second_event(service: Service) -> None:
    first = service.start(paste(OOM))
    settle(service, first)
    second = service.start(paste(OOM))
    settle(service, second)
    assert service.related(second) == ()
    event = next(e for e in service.events(second) if e.kind is EventKind.RELATED)
    assert isinstance(event.body, RelatedFound)
    assert event.body.summary.startswith("This log was read before")
    assert "seen" not in event.body.summary
    assert [(r.id, r.same_log) for r in event.body.incidents] == [(first, True)]
    report = write_markdown(service.report(second))
    assert "before" not in report.split("## Timeline")[0]


def test_a_reader_is_told_how_far_it_is_from_the_start(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SCAN_SECONDS", 0.0)
    monkeypatch.setattr(reading, "SCAN_SHARE", 0.0)
    monkeypatch.setattr(progress, "TELL_SECONDS", 0.0)
    log = tmp_path / "train.log"
    log.write_text(OOM + "".join(f"step {n} loss 2.31 grad_norm 0.97\n" for n in range(200_000)))
    incident = service.start(NewIncident((NamedPath(log),)))
    settle(service, incident)
    told = [e.body for e in service.events(incident) if isinstance(e.body, Progress)]
    scans = [p for p in told if p.step == "scan"]
    assert len(scans) > 3, "a log far smaller than a batch"
    assert scans[0].share is not None
    assert scans[0].share < 0.2
    assert "out of memory" in " ".join(scans[0].found)


def test_stop_before_a_worker_came(idle_service: Service) -> None:
    incident = idle_service.start(paste(OOM))
    assert idle_service.stop(incident)
    assert not idle_service.stop(incident)
    kinds = [e.kind for e in idle_service.follow(incident, timeout=5)]
    assert kinds == [EventKind.RECEIVED, EventKind.STOPPED]
    turn = idle_service.diagnose_again(incident)
    assert turn == 2
    assert idle_service.incident(incident).state is IncidentState.QUEUED


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (NewIncident(), UsageError),
        (paste("  \n"), InputUnreadable),
        (NewIncident((Upload("x", b""),)), InputUnreadable),
        (NewIncident((NamedPath(Path("/nowhere/x.log")),)), InputUnreadable),
    ],
)
def test_nothing_to_read_is_refused_at_the_door(
    idle_service: Service, new: NewIncident, error: type[Exception]
) -> None:
    with pytest.raises(error):
        idle_service.start(new)
    assert idle_service.incidents() == ()


def test_input_that_cannot_be_analysed_ends_in_an_error(service: Service) -> None:
    incident = service.start(NewIncident((Upload("broken.tar.gz", gzip.compress(b"")),)))
    kinds = settle(service, incident)
    assert kinds[-1] is EventKind.ERROR
    body = service.events(incident)[-1].body
    assert isinstance(body, Failed)
    assert body.exit_code == 3
    assert service.incident(incident).state is IncidentState.FAILED


def test_search_archive_share_and_rename(idle_service: Service) -> None:
    one = idle_service.start(paste(OOM, "why 100% dead?"))
    two = idle_service.start(paste("x_y", "other"))
    assert {i.id for i in idle_service.incidents("dead why")} == {one}
    assert {i.id for i in idle_service.incidents("100%")} == {one}
    assert idle_service.incidents("0_ dead") == ()
    idle_service.archive(one)
    assert {i.id for i in idle_service.incidents()} == {two}
    assert {i.id for i in idle_service.incidents(archived=None)} == {one, two}
    token = idle_service.share(two)
    assert token != two
    assert idle_service.share(two) == token
    assert idle_service.shared(token).id == two
    idle_service.withdraw_share(two)
    with pytest.raises(IncidentNotFound):
        idle_service.shared(token)
    idle_service.rename(two, "The 3 AM one")
    assert idle_service.incident(two).title == "The 3 AM one"


def test_feedback_becomes_a_draft_case_without_secrets(service: Service) -> None:
    secret = "hf_" + "a1B2" * 9
    incident = service.start(paste(OOM + f"token {secret}\n", "why?"))
    settle(service, incident)
    given = service.feedback(incident, False, "another job held the memory", Category.OOM)
    assert given.draft is not None
    case = read_yaml((given.draft / "case.yaml").read_text())
    assert case["expect"]["root_cause"] == "another job held the memory"
    assert case["inputs"] == ["pasted.txt"]
    copied = (given.draft / "pasted.txt").read_text()
    assert "out of memory" in copied
    assert secret not in copied
    assert service.feedback_given(incident) == (given,)
    with pytest.raises(UsageError):
        service.feedback(incident)


def test_delete_takes_files_that_nobody_else_names(service: Service) -> None:
    one = service.start(NewIncident((PastedText(OOM, "a"), PastedText("only here\n", "b"))))
    two = service.start(paste(OOM))
    settle(service, one)
    settle(service, two)
    shared, own = (f.path for f in service.evidence(one))
    assert service.delete(one) == 1
    assert not own.exists()
    assert shared.exists()
    with pytest.raises(IncidentNotFound):
        service.events(one)
    assert service.delete(two) == 1
    assert not shared.exists()


def test_large_files_stay_where_they_are(service: Service, tmp_path: Path) -> None:
    small = service.settings.model_copy(update={"copy_below_mib": 0.0001})
    file = tmp_path / "huge.log"
    file.write_text(OOM)
    with open_service(small) as other:
        incident = other.start(NewIncident((NamedPath(file),)))
        settle(other, incident)
        assert other.evidence(incident)[0].origin is Origin.REFERENCE
        assert other.window(incident, "huge.log", 4, 0).lines
        file.write_text("rotated\n")
        with pytest.raises(InputUnreadable, match="shorter"):
            other.window(incident, "huge.log", 4, 0)
        other.delete(incident)
    assert file.exists()


def test_what_was_not_taken_in_stands_in_the_receipt(service: Service) -> None:
    tight = service.settings.model_copy(update={"max_input_mib": 1})
    with open_service(tight) as other:
        given = (Upload("a.log", OOM.encode()), Upload("empty.log", b""))
        large = Upload("large.log", b"x" * (2 << 20))
        incident = other.start(NewIncident((*given, large)))
        settle(other, incident)
        diagnosis = other.diagnosis(incident)
        assert diagnosis is not None
        skipped = {s.what: s.why for s in diagnosis.input.skipped}
        assert skipped["empty.log"] == "empty"
        assert "name the file by its path" in skipped["large.log"]


def test_retention_deletes_idle_incidents_only(service: Service) -> None:
    incident = service.start(paste(OOM))
    settle(service, incident)
    limited = service.settings.model_copy(update={"retention_days": 30})
    with open_service(limited, workers=False) as other:
        assert other.record.purge() == ()
        later = service.record.database.clock() + 31 * 86_400
        object.__setattr__(other.record.database, "clock", lambda: later)
        assert other.record.purge() == (incident,)
    assert service.incidents(archived=None) == ()


def test_names_cannot_leave_their_folder(service: Service) -> None:
    incident = service.start(NewIncident((Upload("../../etc/pass\x00wd\n", OOM.encode()),)))
    settle(service, incident)
    assert [f.name for f in service.evidence(incident)] == ["etc/passwd_"]
    received = service.events(incident)[0].body
    assert isinstance(received, Received)
    assert received.inputs[0].size == len(OOM)


@pytest.mark.parametrize("text", ["", "\0\ud800 odd \x1b[31m", "x" * 200_000])
def test_any_text_can_be_asked(service: Service, text: str) -> None:
    incident = service.start(paste(OOM))
    if not text:
        with pytest.raises(UsageError):
            service.ask(incident, text)
        return
    turn = service.ask(incident, text)
    settle(service, incident)
    parts = service.answer(incident, turn)
    assert all(isinstance(p, AnswerPart) for p in parts)
    assert parts


def test_healthy_is_no_error(service: Service) -> None:
    log = "".join(f"step {n} loss {2 - n / 100:.3f} lr 1e-4\n" for n in range(1, 60))
    incident = service.start(paste(log))
    settle(service, incident)
    assert service.incident(incident).verdict is Verdict.HEALTHY


def test_a_title_that_nobody_chose_becomes_the_cause(service: Service) -> None:
    plain = service.start(paste(OOM))
    asked = service.start(paste(OOM + "\n", "Why did rank 3 die?"))
    assert service.incident(asked).title == "Why did rank 3 die?"
    settle(service, plain)
    settle(service, asked)
    diagnosis = service.diagnosis(plain)
    assert diagnosis is not None
    told = say_plainly(diagnosis)[0]
    assert service.incident(plain).title == service.incident(asked).title == told
    service.rename(asked, "The 3 AM one")
    for incident in (plain, asked):
        service.diagnose_again(incident)
        settle(service, incident)
    assert (service.incident(plain).title, service.incident(asked).title) == (told, "The 3 AM one")
