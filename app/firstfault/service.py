"""What can be done with incidents? The only door for the page, MCP and the command line.

`start`, `ask` and `add_evidence` return as soon as the input is durable; workers do the rest and
everybody follows the same events. A refresh, a second tab or the death of a caller changes nothing.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property

from firstfault.conversation.answerer import Answerer
from firstfault.conversation.pages import PassageSearch
from firstfault.conversation.rules import RuleAnswerer, search_lexically
from firstfault.crew import Crew
from firstfault.errors import CannotAnalyse, IncidentNotFound, UsageError
from firstfault.incidents.acceptance import (
    Acceptance,
    Input,
    NamedPath,
    PastedText,
    Upload,
    accept_inputs,
)
from firstfault.incidents.events import AnswerPart, Event, EventKind, InputSummary, Received
from firstfault.incidents.journal import read_events
from firstfault.incidents.plain import redact_plain
from firstfault.incidents.record import Record, open_record
from firstfault.incidents.records import (
    EvidenceFile,
    Feedback,
    Incident,
    Related,
    RunKind,
    Turn,
    TurnKind,
    title_of_files,
    title_of_words,
)
from firstfault.incidents.verdicts import say_related
from firstfault.incidents.watch import Watch
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.investigation.next_action import describe_answer
from firstfault.knowledge_base.search import Found
from firstfault.knowledge_base.warm import WarmSearch
from firstfault.postmortem.draft import Draft, draft_report
from firstfault.postmortem.impact import GivenFigures
from firstfault.postmortem.rendering import ReportFormat, render_report
from firstfault.postmortem.report import Report
from firstfault.reading import NOTHING_READ, count_finished
from firstfault.said import say_turns
from firstfault.settings import Settings, WorkerMode
from firstfault.worker import Worker, choose_answerer
from firstfault.workspace import Workspace
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Category
from firstfault_tools.log.finished import Finished
from firstfault_tools.log.secrets import redact
from firstfault_tools.log.window import read_window

__all__ = [
    "GivenFigures",
    "NamedPath",
    "NewIncident",
    "PastedText",
    "Service",
    "Upload",
    "open_service",
]

FOLLOW_PAUSE = 0.1
MAX_AROUND = 500


@dataclass(frozen=True, slots=True)
class NewIncident:
    """What a person gives: inputs, a question, or both."""

    inputs: tuple[Input, ...] = ()
    question: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """Lines around a cited one, normalised and redacted: (1-based number, text)."""

    file: str
    cited: int
    lines: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class PagePassage:
    """One section of a knowledge page; heading '' is its summary."""

    page: str
    title: str
    heading: str
    text: str
    url: str | None
    checked: str


@dataclass
class Service:
    """One process's door to the record. Close it when done."""

    record: Record
    workspace: Workspace
    answerer: Answerer = field(default_factory=RuleAnswerer)
    search_passages: PassageSearch = search_lexically
    _stop: threading.Event = field(default_factory=threading.Event)
    _wakes: list[threading.Event] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _workers: list[Worker] = field(default_factory=list)
    _crew: Crew | None = None
    _watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        self._watch = Watch(self.record.incidents)

    @cached_property
    def settings(self) -> Settings:
        return self.record.settings

    # taking in

    def start(self, new: NewIncident, key: str = "") -> str:
        """Accept an incident; its id, once everything given is durable.

        key: idempotency; the same key again gives the same incident, whatever else is passed.
        """
        if not new.inputs and not new.question.strip():
            raise UsageError("paste a log, add a file, or ask a question")
        accepted = self._accept(new.inputs)
        received = _received(TurnKind.REPORT, new.question, accepted)
        kind = RunKind.DIAGNOSE if accepted.files else RunKind.ANSWER
        words = redact(new.title.strip()) or title_of_words(redact(new.question))
        title = words or title_of_files(accepted.files)
        identity = self.record.incidents.create(title, received, accepted.files, key, kind)
        self._settle_files(accepted, new.inputs)
        return identity

    def ask(self, incident: str, text: str, key: str = "") -> int:
        """A follow-up question; the number of its turn. The answer comes as events."""
        if not text.strip():
            raise UsageError("ask a question, or paste the log it is about")
        received = Received(TurnKind.QUESTION, redact(text))
        turn = self.record.incidents.add_turn(incident, received, (), key, RunKind.ANSWER)
        self._wake()
        return turn

    def add_evidence(
        self, incident: str, inputs: Sequence[Input], text: str = "", key: str = ""
    ) -> int:
        """More evidence; everything is diagnosed again, together. The number of the turn."""
        if not inputs:
            raise UsageError("add at least one file or a piece of a log")
        self.record.incidents.get(incident)
        accepted = self._accept(inputs)
        received = _received(TurnKind.EVIDENCE, text, accepted)
        turn = self.record.incidents.add_turn(
            incident, received, accepted.files, key, RunKind.DIAGNOSE
        )
        self._settle_files(accepted, inputs)
        return turn

    def diagnose_again(self, incident: str, key: str = "") -> int:
        """Read everything anew: after a failure, a stop, or an update of the knowledge."""
        self.record.incidents.get(incident)
        self.record.shelf.clear_reading(incident)
        return self._add_turn(incident, TurnKind.AGAIN, RunKind.DIAGNOSE, key)

    def go_on(self, incident: str, key: str = "") -> int:
        """Read on after a stop: what was finished is taken as it was found, all else is read."""
        return self._add_turn(incident, TurnKind.GO_ON, RunKind.DIAGNOSE, key)

    def diagnose_read(self, incident: str, key: str = "") -> int:
        """A verdict on what was finished before a stop. What it lacks can still be read by `go_on`."""
        if not self.read_so_far(incident).size:
            raise UsageError(NOTHING_READ)
        return self._add_turn(incident, TurnKind.READ, RunKind.DIAGNOSE_READ, key)

    def _add_turn(self, incident: str, kind: TurnKind, run: RunKind, key: str) -> int:
        turn = self.record.incidents.add_turn(incident, Received(kind, ""), (), key, run)
        self._wake()
        return turn

    def read_so_far(self, incident: str) -> Finished:
        """What a reading that was stopped had finished; nothing once a verdict on all of it stands."""
        folder = self.record.shelf.reading_of(self.incident(incident).id)
        known = self.workspace.knowledge.signatures
        return count_finished(folder, self.evidence(incident), known)

    # following

    def events(self, incident: str, after: int = 0) -> tuple[Event, ...]:
        """Events after sequence number `after`, at once."""
        found = read_events(self.record.database, incident, after)
        if not found:
            self.record.incidents.get(incident)
        return found

    def follow(self, incident: str, after: int = 0, timeout: float = 60.0) -> Iterator[Event]:
        """Events after `after` as they come; ends when no run is open, or after `timeout` seconds."""
        limit = time.monotonic() + timeout
        with self._watch.follow(incident):
            now = self._watch.progress(incident, age=0.0)
            while True:
                if now is None:
                    raise IncidentNotFound(f"no incident {incident}; it may have been deleted")
                if now.last_event > after:
                    for event in read_events(self.record.database, incident, after):
                        after = event.seq
                        yield event
                elif now.is_settled or time.monotonic() >= limit:
                    return
                else:
                    time.sleep(FOLLOW_PAUSE)
                now = self._watch.progress(incident)

    def stop(self, incident: str) -> bool:
        """Stop what runs or waits; what was found stays. False when nothing did."""
        self.record.incidents.get(incident)
        return self.record.queue.stop(incident) > 0

    # reading

    def incident(self, incident: str) -> Incident:
        """One incident."""
        return self.record.incidents.get(incident)

    def shared(self, token: str) -> Incident:
        """The incident behind a share token; for a view that only reads."""
        return self.record.incidents.get_shared(token)

    def incidents(
        self, query: str = "", archived: bool | None = False, limit: int = 100
    ) -> tuple[Incident, ...]:
        """Incidents that hold every word of `query`, last changed first."""
        return self.record.incidents.search(query, archived, limit)

    def turns(self, incident: str) -> tuple[Turn, ...]:
        """What people said and gave, in order."""
        return self.record.incidents.turns(incident)

    def evidence(self, incident: str) -> tuple[EvidenceFile, ...]:
        """Inputs, as given."""
        return self.record.shelf.files(incident)

    def diagnosis(self, incident: str) -> Diagnosis | None:
        """The latest diagnosis; None while there is none."""
        self.record.incidents.get(incident)
        return self.record.verdicts.latest(incident)

    def answer(self, incident: str, turn: int) -> tuple[AnswerPart, ...]:
        """Parts of the answer to one turn; empty while there are none."""
        parts = [
            e.body
            for e in read_events(self.record.database, incident)
            if e.turn == turn and e.kind is EventKind.ANSWER and isinstance(e.body, AnswerPart)
        ]
        last = max((p.attempt for p in parts), default=1)
        return tuple(p for p in parts if p.attempt == last)

    def related(self, incident: str) -> tuple[Related, ...]:
        """Earlier incidents with the same signature, host or GPU."""
        diagnosis = self.diagnosis(incident)
        if diagnosis is None:
            return ()
        with self.record.database.read() as connection:
            return self.record.verdicts.related(connection, incident, diagnosis)

    def window(self, incident: str, file: str, line: int, around: int = 12) -> Window:
        """Lines around `line` of one file of the incident."""
        around = max(0, min(around, MAX_AROUND))
        path = self.record.shelf.artefact(incident, file)
        lines = read_window(path, max(1, line - around), max(1, line) + around)
        return Window(file, line, tuple(lines))

    def passage(self, page: str, heading: str = "") -> PagePassage:
        """A section of a knowledge page, by heading ('' or the page's title: its summary)."""
        known = self.workspace.knowledge.pages.get(page)
        if known is None:
            raise UsageError(f"no knowledge page {page!r}; `firstfault search` finds pages")
        wanted = "" if heading in ("Summary", known.title) else heading
        section = known.section(wanted)
        if section is None:
            headings = ", ".join(s.heading or "Summary" for s in known.sections)
            raise UsageError(f"page {page} has no section {heading!r}; it has: {headings}")
        return PagePassage(page, known.title, wanted, section.text, known.url, known.checked)

    def recognises(self, message: str) -> bool:
        """The message, pasted alone, is that of a known failure."""
        return self.workspace.recognises(message)

    def search(self, query: str, limit: int = 8) -> tuple[Found, ...]:
        """Passages of the knowledge base."""
        return tuple(self.search_passages(query, limit))

    def warm_search(self) -> None:
        """Load the vectors behind the search; until then it goes by words alone."""
        if isinstance(self.search_passages, WarmSearch):
            self.search_passages.warm()

    # keeping

    def feedback(
        self,
        incident: str,
        helpful: bool | None = None,
        really: str = "",
        category: Category | None = None,
    ) -> Feedback:
        """What a person says about the verdict; `really` makes a draft eval case."""
        if helpful is None and not really.strip():
            raise UsageError("say whether it helped, or what it really was")
        return self.record.feedback.add(
            self.incident(incident),
            self.diagnosis(incident),
            self.record.shelf.artefacts(incident),
            [t.text for t in self.turns(incident) if t.text],
            helpful,
            really,
            category,
        )

    def feedback_given(self, incident: str) -> tuple[Feedback, ...]:
        """Feedback on one incident, oldest first."""
        return self.record.feedback.of_incident(incident)

    def rename(self, incident: str, title: str) -> None:
        """Give an incident another title."""
        self.record.incidents.set_title(incident, title)

    def share(self, incident: str) -> str:
        """Token for the read-only view. Whoever has it can read; it does not lead to the id."""
        return self.record.incidents.share(incident)

    def withdraw_share(self, incident: str) -> None:
        """End the read-only view."""
        self.record.incidents.withdraw_share(incident)

    def archive(self, incident: str, archived: bool = True) -> None:
        """Take an incident out of the list, or put it back."""
        self.record.incidents.set_archived(incident, archived)

    def delete(self, incident: str) -> int:
        """Delete for good: rows, what was unpacked, drafts, what a model was told and said, and
        evidence that no other incident names.

        Returns the number of evidence files deleted.
        """
        from firstfault.agent.forgetting import forget_incident

        self.record.incidents.get(incident)
        gone = self.record.delete(incident)
        forget_incident(self.settings, incident, self.answerer)
        return gone

    def report(self, incident: str, figures: GivenFigures | None = None) -> Report:
        """The post-mortem. figures: what a person knows and the evidence may not say."""
        known, diagnosis = self.incident(incident), self.diagnosis(incident)
        if diagnosis is None:
            raise CannotAnalyse(f"incident {incident} has no diagnosis yet; wait for its verdict")
        given = self.feedback_given(incident)
        return draft_report(
            Draft(
                title=known.title,
                incident=incident,
                diagnosis=diagnosis,
                files={
                    n: p for n, p in self.record.shelf.artefacts(incident).items() if p.is_file()
                },
                knowledge=self.workspace.knowledge_path,
                figures=figures or GivenFigures(),
                related=say_related(self.related(incident), diagnosis),
                really=tuple(f.really for f in given if f.really),
                said=say_turns(self.turns(incident), diagnosis, self.workspace.knowledge.pages),
            )
        )

    def export(self, incident: str, form: str, figures: GivenFigures | None = None) -> bytes:
        """The incident as a file: json (the diagnosis), or the post-mortem as md, html, docx, pdf."""
        if form == "json":
            diagnosis = self.diagnosis(incident)
            if diagnosis is None:
                raise CannotAnalyse(f"incident {incident} has no diagnosis yet")
            return json.dumps(
                redact_plain(describe_answer(diagnosis, self.workspace.knowledge.pages)),
                ensure_ascii=False,
                indent=1,
            ).encode()
        if form not in set(ReportFormat):
            raise UsageError(f"no format {form!r}; use json, md, html, docx or pdf")
        return render_report(self.report(incident, figures), ReportFormat(form))

    # running

    def start_workers(self) -> None:
        """Execute runs in threads or children of this process, unless workers run elsewhere."""
        if self._threads or self._crew or self.settings.worker is WorkerMode.EXTERNAL:
            return
        if self.settings.worker is WorkerMode.PROCESS:
            self._crew = Crew(self.settings)
            self._crew.start(self.settings.worker_threads)
            return
        for number in range(self.settings.worker_threads):
            worker = Worker(self.record, self.workspace, self.answerer, search=self.search_passages)
            self._workers.append(worker)
            wake = threading.Event()
            thread = threading.Thread(
                target=worker.work, args=(self._stop, wake), name=f"worker-{number}", daemon=True
            )
            thread.start()
            self._wakes.append(wake)
            self._threads.append(thread)

    def connect_model(self, settings: Settings) -> None:
        """From now on runs are answered with the model of `settings`; runs that go on end as they began.

        Raises UsageError where workers run elsewhere, for they read settings of their own.
        """
        from firstfault.agent.connecting import put_in_environment

        if self.settings.worker is WorkerMode.EXTERNAL:
            raise UsageError(
                "workers run elsewhere: set FIRSTFAULT_MODEL, FIRSTFAULT_MODEL_URL and the key there"
            )
        put_in_environment(settings)
        self.record = replace(self.record, settings=settings)
        self.__dict__.pop("settings", None)
        self.answerer = choose_answerer(self.record, self.search_passages)
        if self._crew is not None:
            self._crew.renew(settings)
        for worker in self._workers:
            worker.answerer = self.answerer

    @property
    def worker_processes(self) -> tuple[int, ...]:
        """Ids of this process's worker processes; empty where it has none."""
        return self._crew.process_ids if self._crew is not None else ()

    def close(self) -> None:
        """Let the workers finish their runs, and close the database."""
        self._stop.set()
        self._wake()
        if self._crew is not None:
            self._crew.stop()
        for thread in self._threads:
            thread.join(timeout=30)
        self.record.database.close()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wake(self) -> None:
        for wake in self._wakes:
            wake.set()
        if self._crew is not None:
            self._crew.wake()

    def _accept(self, inputs: Sequence[Input]) -> Acceptance:
        return accept_inputs(inputs, self.settings)

    def _settle_files(self, accepted: Acceptance, inputs: Sequence[Input]) -> None:
        # between storing and committing, deleting another incident may have taken a shared file
        if any(f.sha256 is not None and not f.path.is_file() for f in accepted.files):
            again = self._accept(inputs)
            if len(again.files) != len(accepted.files):
                raise CannotAnalyse("evidence vanished while it was stored; give it again")
        self._wake()


def open_service(
    settings: Settings | None = None,
    answerer: Answerer | None = None,
    workers: bool = True,
) -> Service:
    """Service of this installation; with `workers`, runs are executed by children or threads of this process."""
    settings = settings or Settings()  # type: ignore[call-arg]
    record = open_record(settings)
    search = WarmSearch()
    service = Service(record, Workspace(), answerer or choose_answerer(record, search), search)
    if workers:
        service.start_workers()
    return service


def _received(turn: TurnKind, text: str, accepted: Acceptance) -> Received:
    inputs = tuple(InputSummary(f.name, f.origin.value, f.size) for f in accepted.files)
    return Received(turn, redact(text), inputs, accepted.skipped)
