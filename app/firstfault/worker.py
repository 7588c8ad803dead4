"""Who executes runs? A worker that claims them from the database, one at a time and thread.

Nothing that a worker does is lost or said twice when it is killed: input is durable before a run
exists, a result is written in one transaction that proves the lease, and events have keys.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import field
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from firstfault.conversation.answerer import Answerer, Exchange, Question
from firstfault.conversation.pages import PassageSearch
from firstfault.conversation.rules import RuleAnswerer, search_lexically
from firstfault.errors import FirstfaultError, ModelUnavailable, UsageError
from firstfault.incidents.events import (
    AnswerPart,
    Body,
    Done,
    EventKind,
    Failed,
    PhaseReached,
    Progress,
    ReceiptWritten,
    Received,
    RelatedFound,
    VerdictReached,
)
from firstfault.incidents.journal import append_events, read_events
from firstfault.incidents.record import Record
from firstfault.incidents.records import (
    EvidenceFile,
    Related,
    Run,
    RunKind,
    RunState,
    Turn,
    TurnKind,
    title_of_files,
    title_of_words,
)
from firstfault.incidents.runs import LeaseLost
from firstfault.incidents.verdicts import say_read_before, say_related
from firstfault.intake.collect import Skipped, collect_files
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.limits import OverLimit, bound_run
from firstfault.reading import (
    NOTHING_READ,
    ScanTeller,
    count_things,
    open_finished,
    split_readable,
)
from firstfault.workspace import Workspace
from firstfault_tools.dataclass import dataclass
from firstfault_tools.log.executors import Workers
from firstfault_tools.log.finished import FinishedBatches

log = logging.getLogger(__name__)
IDLE_SECONDS = 0.2
PURGE_SECONDS = 3600.0
Rest = Callable[[], None]
DATABASE_PAUSE = 1.0

MODEL_TURNS = 16
_MODEL_TURNS = threading.BoundedSemaphore(MODEL_TURNS)
"""Follow-up turns that may wait for a model at the same time in one process."""


def name_worker() -> str:
    """Name of one worker, unique among hosts, processes and threads."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def choose_answerer(record: Record, search: PassageSearch = search_lexically) -> Answerer:
    """The model of the settings where one is set up, else rules, with a probe where it is allowed. Opens no connection."""
    from firstfault.agent.endpoint import read_endpoint

    if read_endpoint(record.settings) is None and not record.settings.model_probe:
        return RuleAnswerer(search)
    from firstfault.agent.opening import open_answerer, open_probing

    if read_endpoint(record.settings) is None:
        return open_probing(record, search)

    return open_answerer(record, search=search)


@dataclass
class Worker:
    """One executor of runs."""

    record: Record
    workspace: Workspace
    answerer: Answerer = field(default_factory=RuleAnswerer)
    name: str = field(default_factory=name_worker)
    search: PassageSearch = search_lexically

    def _purge(self) -> None:
        old = self.record.purge()
        if old:
            from firstfault.agent.forgetting import forget_incident

            for incident in old:
                forget_incident(self.record.settings, incident, self.answerer)

    def work(self, stop: threading.Event, wake: threading.Event | None = None) -> None:
        """Execute runs until `stop` is set. `wake` tells that there may be a new one."""
        purged = 0.0
        while not stop.is_set():
            try:
                if time.monotonic() - purged > PURGE_SECONDS:
                    self._purge()
                    purged = time.monotonic()
                if self._run_beside() if self.answerer.explains else self.run_once():
                    continue
            except DBAPIError:
                # the lease keeps the run ours or frees it; either way trying again is right
                log.exception("the database did not answer; trying again")
                stop.wait(DATABASE_PAUSE)
                continue
            if wake is not None:
                wake.wait(IDLE_SECONDS)
                wake.clear()
            else:
                stop.wait(IDLE_SECONDS)

    def run_once(self) -> bool:
        """Claim and execute one run; False when none is free."""
        run = self.record.queue.claim(self.name)
        if run is None:
            return False
        self._execute(run)
        return True

    def _run_beside(self) -> bool:
        """Claim a run and wait for its deterministic part only; False when none is free.

        A model may stall for minutes. It is waited for in a thread of its own, so that the next
        incident's verdict does not wait behind it. The run keeps its lease through its heartbeat.
        """
        run = self.record.queue.claim(self.name)
        if run is None:
            return False
        _say_claimed(run)
        with ExitStack() as stack:
            execution = _Execution(self, run, stack.enter_context(_heartbeat(self.record, run)))
            # the deterministic part stays in this thread, which alone can be bounded
            rest = execution.begin() if run.kind.diagnoses else execution.answer
            if rest is None:
                return True
            waits = stack.pop_all()
        beside = _MODEL_TURNS.acquire(blocking=False)

        def finish() -> None:
            with waits:
                try:
                    execution.guard(rest)
                finally:
                    if beside:
                        _MODEL_TURNS.release()

        if run.kind.diagnoses or beside:
            threading.Thread(target=finish, name=f"run-{run.id}", daemon=True).start()
        else:
            finish()
        return True

    def _execute(self, run: Run) -> None:
        _say_claimed(run)
        with _heartbeat(self.record, run) as lost:
            execution = _Execution(self, run, lost)
            rest = execution.begin() if run.kind.diagnoses else execution.answer
            if rest is not None:
                execution.guard(rest)


def _say_claimed(run: Run) -> None:
    log.info("run claimed", extra={"run": run.id, "incident": run.incident, "attempt": run.attempt})


@contextmanager
def _heartbeat(record: Record, run: Run) -> Iterator[threading.Event]:
    """Prolongs the lease in the background; the event is set when the lease is lost."""
    over, lost = threading.Event(), threading.Event()

    def beat() -> None:
        while not over.wait(record.queue.lease_seconds / 4):
            try:
                if not record.queue.beat(run):
                    lost.set()
                    return
            except DBAPIError:
                log.warning("run %s: heartbeat not written", run.id, exc_info=True)

    thread = threading.Thread(target=beat, name=f"heartbeat-{run.id}", daemon=True)
    thread.start()
    try:
        yield lost
    finally:
        over.set()
        thread.join()


@dataclass
class _Execution:
    """One attempt at one run."""

    worker: Worker
    run: Run
    lost: threading.Event
    started: float = field(default_factory=time.monotonic)

    @property
    def record(self) -> Record:
        return self.worker.record

    def begin(self) -> Rest | None:
        """Diagnose and publish; what is left to do with a model, None where nothing is."""
        rest: list[Rest | None] = []
        self.guard(lambda: rest.append(self._diagnose()))
        return rest[0] if rest else None

    def guard(self, work: Rest) -> None:
        """Do a part of the run; whatever goes wrong ends in an event, never in silence."""
        try:
            work()
        except LeaseLost:
            log.info("run %s: lease lost, result dropped", self.run.id)
        except DBAPIError:
            raise
        except OverLimit as error:
            log.warning("run %s: %s", self.run.id, error)
            self._fail(
                f"could not analyse: {error}. Leave that file out, or raise FIRSTFAULT_RUN_CPU_S, "
                "FIRSTFAULT_RUN_WALL_S or FIRSTFAULT_RUN_MEMORY_MIB, and start it again.",
                4,
            )
        except FirstfaultError as error:
            self._fail(str(error), error.exit_code)
        except Exception as error:  # the worker's border: the run fails, the worker lives
            log.exception("run %s failed", self.run.id)
            self._fail(
                f"could not analyse: {error!r}. The input is kept; report this with the log of the worker.",
                4,
            )

    def _fail(self, message: str, exit_code: int) -> None:
        try:
            with self.record.database.write() as connection:
                self.record.queue.hold(connection, self.run)
                self._say(connection, ("error", Failed(message, exit_code)))
                self.record.queue.finish(connection, self.run, RunState.FAILED, message)
        except LeaseLost:
            log.info("run %s: lease lost", self.run.id)

    def _say(self, connection: Connection, *said: tuple[str, Body]) -> None:
        append_events(
            self.record.database,
            connection,
            self.run.incident,
            self.run.turn,
            [(f"run-{self.run.id}/{key}", body) for key, body in said],
        )

    def _tell(self, key: str, body: Body) -> None:
        with self.record.database.write() as connection:
            self.record.queue.hold(connection, self.run)
            self._say(connection, (key, body))

    def _done(self) -> Done:
        return Done(round(time.monotonic() - self.started, 3))

    def _diagnose(self) -> Rest | None:
        files = self.record.shelf.files(self.run.incident)
        self._tell("read", Progress("read", count_things(len(files), "input")))
        present, gone = split_readable(files)
        self.record.shelf.clear_scratch(self.run.incident)
        scratch = self.record.shelf.scratch_of(self.run.incident)
        with self._bounded():
            collection = collect_files([(f.name, f.path) for f in present], scratch)
        left_out = (*self._refused(), *gone, *collection.skipped)
        collection = type(collection)(collection.artefacts, left_out)
        self._tell("examine", Progress("examine", count_things(len(collection.artefacts), "file")))
        question = " ".join(t.text for t in self._turns() if t.kind is not TurnKind.AGAIN)
        only = self.run.kind is RunKind.DIAGNOSE_READ
        with self._bounded():
            kept = self._open_finished(present, only)
            teller = ScanTeller(self._tell, self.started)
            workers = Workers(tell=teller.say, kept=kept, finished_only=only)
            diagnosis = self.worker.workspace.diagnose_collection(collection, question, workers)
        artefacts = {a.name: a.path for a in collection.artefacts}
        explains = self.worker.answerer.explains
        asked = self._question(self._own_words(), diagnosis, artefacts)
        with self.record.database.write() as connection:
            self.record.queue.hold(connection, self.run)
            self._publish(connection, diagnosis, artefacts, self._titles(files))
        if not only:
            self.record.shelf.clear_reading(self.run.incident)
        # what was asked above the log is answered by rule, whoever explains after it
        for number, part in enumerate(RuleAnswerer(self.worker.search).explain(asked)):
            self._tell(f"asked-{number}", part)
        with self.record.database.write() as connection:
            self.record.queue.hold(connection, self.run)
            if not explains:
                self._say(connection, ("done", self._done()))
                self.record.queue.finish(connection, self.run, RunState.DONE)
        if not explains:
            return None

        def explain() -> None:
            asked = self._question(question, diagnosis, artefacts)
            self._write_parts(asked, self.worker.answerer.explain(asked), fallback=False)

        return explain

    def _open_finished(self, present: Sequence[EvidenceFile], only: bool) -> FinishedBatches:
        """What readings of the same files finished; with `only`, a verdict is asked on just that."""
        folder = self.record.shelf.reading_of(self.run.incident)
        kept = open_finished(folder, present, self.worker.workspace.knowledge.signatures)
        kept.forget_others()
        if only and not kept.count().size:
            raise UsageError(NOTHING_READ)
        return kept

    def _own_words(self) -> str:
        """What was said with the evidence of this very turn."""
        return next((t.text for t in self._turns() if t.number == self.run.turn), "")

    def _titles(self, files: Sequence[EvidenceFile]) -> tuple[str, ...]:
        """Titles that nobody chose: names of files, and what was asked."""
        return (title_of_files(files), *(title_of_words(turn.text) for turn in self._turns()))

    def _publish(
        self,
        connection: Connection,
        diagnosis: Diagnosis,
        artefacts: dict[str, Path],
        automatic_titles: tuple[str, ...],
    ) -> None:
        phases = [
            (f"phase-{p.name.value}", PhaseReached(p.name, p.status, p.summary))
            for p in diagnosis.phases
        ]
        receipt, verdict = ReceiptWritten(diagnosis.input), VerdictReached(diagnosis)
        self._say(connection, ("receipt", receipt), *phases, ("verdict", verdict))
        self.record.verdicts.save(connection, self.run, diagnosis, artefacts, automatic_titles)
        related = self.record.verdicts.related(connection, self.run.incident, diagnosis)
        again = self.record.verdicts.read_before(connection, self.run.incident, diagnosis)
        if again or related:
            said = " ".join(
                s for s in (say_read_before(again), say_related(related, diagnosis)) if s
            )
            found = RelatedFound(said, (*again, *related))
            self._say(connection, ("related", found))

    def answer(self) -> None:
        """Answer the question of the run's turn."""
        turn = next(t for t in self._turns() if t.number == self.run.turn)
        diagnosis = self.record.verdicts.latest(self.run.incident)
        asked = self._question(
            turn.text, diagnosis, dict(self.record.shelf.artefacts(self.run.incident))
        )
        self._tell("answer", Progress("answer"))
        self._write_parts(asked, self._answer_parts(asked), fallback=True)

    def _answer_parts(self, asked: Question) -> Iterator[AnswerPart | Progress | VerdictReached]:
        """A model's parts as they come, for it waits more than it works; the rules' parts at once, bounded."""
        parts = self.worker.answerer.answer(asked)
        if self.worker.answerer.explains:
            return parts
        with self._bounded():
            return iter(list(parts))

    def _bounded(self) -> AbstractContextManager[None]:
        note = self.record.queue.note_of(self.run.id)
        return nullcontext() if note is None else bound_run(self.record.settings, note)

    def _write_parts(
        self,
        asked: Question,
        parts: Iterator[AnswerPart | Progress | VerdictReached],
        fallback: bool,
    ) -> None:
        repeatable = self.worker.answerer.repeatable
        prefix = "" if repeatable else f"{self.run.attempt}/"
        try:
            for number, part in enumerate(parts):
                if isinstance(part, VerdictReached):
                    self._judge_again(f"{prefix}verdict-{number}", part, asked)
                else:
                    self._tell(f"{prefix}part-{number}", self._stamp(part, repeatable))
                    self._name_state(part, asked)
        except ModelUnavailable as error:
            self._tell(f"{prefix}model", Progress("model", f"not reached: {error}"))
            if fallback:
                for number, part in enumerate(RuleAnswerer(self.worker.search).answer(asked)):
                    self._tell(f"{prefix}rules-{number}", self._stamp(part, repeatable))
                    self._name_state(part, asked)
        with self.record.database.write() as connection:
            self.record.queue.hold(connection, self.run)
            self._say(connection, ("done", self._done()))
            self.record.queue.finish(connection, self.run, RunState.DONE)

    def _name_state(self, part: AnswerPart | Progress, asked: Question) -> None:
        """The title follows what was said: a verdict that was ruled out is no title any more."""
        if not isinstance(part, AnswerPart) or part.walk is None or asked.diagnosis is None:
            return
        with self.record.database.write() as connection:
            self.record.queue.hold(connection, self.run)
            ruled = part.walk.ruled_out
            self.record.verdicts.name_state(connection, self.run.incident, asked.diagnosis, ruled)

    def _judge_again(self, key: str, reached: VerdictReached, asked: Question) -> None:
        """The verdict with a model's explanations in it takes the place of the one before."""
        with self.record.database.write() as connection:
            self.record.queue.hold(connection, self.run)
            self._say(connection, (key, reached))
            self.record.verdicts.save(
                connection, self.run, reached.diagnosis, dict(asked.artefacts)
            )

    def _stamp(self, part: AnswerPart | Progress, repeatable: bool) -> AnswerPart | Progress:
        if isinstance(part, AnswerPart) and not repeatable:
            return AnswerPart(part.text, part.citations, part.source, self.run.attempt)
        return part

    def _refused(self) -> tuple[Skipped, ...]:
        """What was given and not taken in: empty, too large, too many; the receipt names it, too."""
        events = read_events(self.record.database, self.run.incident)
        refused = (
            Skipped(skipped.what, skipped.why)
            for event in events
            if isinstance(event.body, Received) and event.turn <= self.run.turn
            for skipped in event.body.skipped
        )
        return tuple(dict.fromkeys(refused))

    def _turns(self) -> tuple[Turn, ...]:
        return tuple(
            t for t in self.record.incidents.turns(self.run.incident) if t.number <= self.run.turn
        )

    def _question(
        self, text: str, diagnosis: Diagnosis | None, artefacts: dict[str, Path]
    ) -> Question:
        return Question(
            incident=self.run.incident,
            turn=self.run.turn,
            text=text,
            diagnosis=diagnosis,
            artefacts=artefacts,
            earlier=self._earlier(),
            knowledge=self.worker.workspace.knowledge,
            is_stopped=self.lost.is_set,
            time=next((t.created for t in self._turns() if t.number == self.run.turn), 0.0),
            related=self._related(diagnosis),
        )

    def _related(self, diagnosis: Diagnosis | None) -> tuple[Related, ...]:
        """Earlier incidents like this one."""
        if diagnosis is None:
            return ()
        with self.record.database.read() as connection:
            return self.record.verdicts.related(connection, self.run.incident, diagnosis)

    def _earlier(self) -> tuple[Exchange, ...]:
        said: dict[int, list[str]] = {}
        for event in read_events(self.record.database, self.run.incident):
            if event.kind is EventKind.ANSWER and isinstance(event.body, AnswerPart):
                said.setdefault(event.turn, []).append(event.body.text)
        return tuple(
            Exchange(t.text, "\n\n".join(said[t.number]), t.created)
            for t in self._turns()
            if t.number in said
        )
