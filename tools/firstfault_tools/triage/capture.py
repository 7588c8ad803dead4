"""What do all hosts and ranks say now? Steps in order, hosts side by side, every answer kept as it comes."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import field, replace

from firstfault_tools.dataclass import dataclass
from firstfault_tools.triage.bundle import Bundle
from firstfault_tools.triage.execution import Answer, State, run_command
from firstfault_tools.triage.headroom import read_headroom
from firstfault_tools.triage.last_lines import LastLine, read_last_line
from firstfault_tools.triage.processes import (
    LISTS,
    Rank,
    ask_environment,
    ask_outputs,
    ask_times,
    find_candidates,
    name_ranks,
    read_environment,
    read_outputs,
    read_times,
    write_environment,
)
from firstfault_tools.triage.steps import Manager, Scope, Step
from firstfault_tools.triage.transports import Transport

IDENTITY = ("uname", "-n")
IDENTITY_S = 20.0
LIST_S = 15.0
SSH_FAILED = 255
"""ssh(1): exit status 255 is ssh's own error, everything else the remote command's."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to capture. limit_s: for the whole. parallel: hosts at a time. fields: what commands may name."""

    steps: tuple[Step, ...]
    hosts: tuple[str, ...]
    limit_s: float = 300.0
    parallel: int = 16
    match: str = ""
    world: int | None = None
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One command that was run, or could not be. file: within the bundle; empty where it said nothing."""

    step: str
    host: str
    rank: int | None
    pid: int | None
    command: str
    state: State
    exit_code: int | None
    elapsed_s: float
    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class Capture:
    """What was captured and what was not. answered: host as asked -> its own name."""

    outcomes: tuple[Outcome, ...]
    ranks: tuple[Rank, ...]
    last_lines: tuple[LastLine, ...]
    answered: Mapping[str, str]
    missing_hosts: Mapping[str, str]
    missing_ranks: tuple[int, ...]
    world: int | None
    notes: tuple[str, ...]
    stopped: bool
    elapsed_s: float

    @property
    def quiet_s(self) -> float | None:
        """Seconds since any rank wrote to its log; None where no log's age is known."""
        return min((r.log_age_s for r in self.ranks if r.log_age_s is not None), default=None)

    @property
    def is_whole(self) -> bool:
        """Every host answered, every rank was found, nobody stopped it."""
        return not (self.missing_hosts or self.missing_ranks or self.stopped)


class Capturing:
    """One capture as it goes on."""

    def __init__(
        self, plan: Plan, transport: Transport, bundle: Bundle, show: Callable[[str], None],
        stop: threading.Event | None = None,
    ) -> None:  # fmt: skip
        self.plan = plan
        self.transport = transport
        self.bundle = bundle
        self.show = show
        self.stop = stop or threading.Event()
        self.begun = time.monotonic()
        self.deadline = self.begun + plan.limit_s
        self.outcomes: list[Outcome] = []
        self.ranks: list[Rank] = []
        self.last_lines: list[LastLine] = []
        self.answered: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        self.notes: list[str] = []
        self._lock = threading.Lock()

    def run(self) -> Capture:
        """Everything; Ctrl-C or `stop` ends it early with what there is."""
        try:
            self._run()
        except KeyboardInterrupt:
            self.stop.set()
        return self._sum_up()

    def _run(self) -> None:
        for step in self._steps(Scope.JOB):
            self._take(step, "", here=True)
        with ThreadPoolExecutor(self.plan.parallel) as pool:
            try:
                _join(pool.submit(self._identify, host) for host in self.plan.hosts)
                self._name_doubles()
                alive = [host for host in self.plan.hosts if host in self.answered]
                tasks = [pool.submit(self._visit, host) for host in self.plan.hosts]
                self._ask_any(alive)
                _join(tasks)
            except KeyboardInterrupt:
                self.stop.set()  # before the pool is left, which waits for its threads
                raise

    def _steps(self, *scopes: Scope) -> list[Step]:
        return [step for step in self.plan.steps if step.scope in scopes]

    def _identify(self, host: str) -> None:
        """Does it answer, and as whom?"""
        answer = self._execute(host, IDENTITY, IDENTITY_S)
        said = answer.output[:300].decode("utf-8", errors="replace").strip()
        name = said.splitlines()[-1].strip() if said else ""
        if answer.state is not State.OK or not name:
            self.missing[host] = answer.reason or "it gave no name"
            self._note(host, "identity", IDENTITY, replace(answer, reason=self.missing[host]), "")
            return
        with self._lock:
            self.answered[host] = name
            if not _same(host, name):
                self.notes.append(f"{host}: the machine that answered calls itself {name}")

    def _name_doubles(self) -> None:
        """Two names for one machine would count its ranks twice."""
        first: dict[str, str] = {}
        for host in self.plan.hosts:
            name = self.answered.get(host)
            if name is None:
                continue
            if name in first:
                del self.answered[host]
                self.missing[host] = f"{name} answered, as it already did for {first[name]}"
            first.setdefault(name, host)

    def _visit(self, host: str) -> None:
        """All steps of one host, in order."""
        ranks: tuple[Rank, ...] = ()
        if host in self.answered:
            ranks = self._find_ranks(host)
            with self._lock:
                self.ranks += ranks
        for step in self._steps(Scope.TARGET, Scope.HOST, Scope.PROCESS):
            if step.scope is Scope.TARGET:
                self._take(step, host, here=True)
            elif host not in self.answered:
                continue
            elif step.scope is Scope.HOST:
                self._take(step, host)
            else:
                for rank in ranks:
                    self._take(step, host, rank)

    def _find_ranks(self, host: str) -> tuple[Rank, ...]:
        for argv in LISTS:
            listing = self._execute(host, argv, LIST_S)
            self._note(host, "processes", argv, listing, "")
            if listing.state is not State.UNAVAILABLE:
                break
        candidates = find_candidates(_text(listing), self.plan.match)
        if not candidates:
            with self._lock:
                self.notes.append(f"{host}: no training process was found")
            return ()
        environment = self._execute(host, ask_environment(candidates), LIST_S)
        outputs = self._execute(host, ask_outputs(candidates), LIST_S)
        ranks = name_ranks(
            host, candidates, read_environment(_text(environment)), read_outputs(_text(outputs)),
            self.plan.match,
        )  # fmt: skip
        times = self._execute(
            host, ask_times(f for rank in ranks for f in (*rank.logs, *rank.dump_files())), LIST_S
        )
        ranks, stale = read_times(ranks, _text(times))
        with self._lock:
            self.notes += [
                f"{host}: {file} is older than its rank and was left out" for file in stale
            ]
        for rank in ranks:
            if rank.environment:
                text = write_environment(rank.environment).encode()
                self.bundle.write(host, f"{rank.label}-environment.txt", text)
        return ranks

    def _ask_any(self, hosts: Sequence[str]) -> None:
        """Steps that one host answers for all: the next host is asked only where one fails."""
        ended: dict[str, float] = {}
        for step in self._steps(Scope.ANY):
            if step.after in ended:
                self._pause(ended[step.after] + step.pause_s)
            for host in hosts[:3]:
                if self._take(step, host) is State.OK:
                    ended[step.id] = time.monotonic()
                    break

    def _pause(self, until: float) -> None:
        self.stop.wait(max(0.0, min(until, self.deadline) - time.monotonic()))

    def _take(
        self, step: Step, host: str, rank: Rank | None = None, here: bool = False
    ) -> State | None:
        """One step in one place; None where nothing that it needs is known there."""
        commands = step.fill(self._fields(host, rank))
        name = (
            f"{step.id}.{step.suffix}" if rank is None else f"{rank.label}-{step.id}.{step.suffix}"
        )
        state: State | None = None
        for argv in commands:
            answer = self._execute(host, argv, step.limit_s, here)
            file = self._keep(host or "job", name, answer, step)
            self._note(host, step.id, argv, answer, file, rank, here)
            state = answer.state
            if rank is not None and step.id == "last-lines" and answer.output:
                last = read_last_line(_text(answer), rank.host, rank.pid, rank.rank)
                with self._lock:
                    self.last_lines.append(last)
            if state is not State.UNAVAILABLE and not (state is State.FAILED and not answer.output):
                break
        return state

    def _fields(self, host: str, rank: Rank | None) -> dict[str, str]:
        fields = {"host": host, "job": "", "options": "", "checkpoints": "", **self.plan.fields}
        return {
            **fields,
            "pid": str(rank.pid) if rank else "",
            "rank": "" if rank is None or rank.rank is None else str(rank.rank),
            "logs": "\0".join(rank.logs) if rank else "",
            "dump": rank.dump if rank else "",
        }

    def _execute(
        self, host: str, argv: Sequence[str], limit_s: float, here: bool = False
    ) -> Answer:
        left = min(limit_s, self.deadline - time.monotonic())
        whole = tuple(argv) if here else self.transport.wrap(host, argv, left)
        if left > 0 and not self.stop.is_set():
            self.show(f"+ {shlex.join(whole)}")
        # what ends over there needs a moment to be told here
        grace = 0.0 if here or self.transport.manager is Manager.LOCAL else min(3.0, left)
        answer = run_command(whole, left + grace if left > 0 else left, self.stop)
        if self.transport.manager is Manager.SSH and not here and answer.exit_code == SSH_FAILED:
            return replace(answer, state=State.UNREACHABLE)
        return answer

    def _keep(self, place: str, name: str, answer: Answer, step: Step) -> str:
        for said in read_headroom(step.id, _text(answer)) if answer.output else ():
            with self._lock:
                self.notes.append(f"{place}: {said}")
        if not answer.output:
            return ""
        return self.bundle.write(place, name, answer.output, step.binary, step.diagnosed)

    def _note(
        self, host: str, step: str, argv: Sequence[str], answer: Answer, file: str,
        rank: Rank | None = None, here: bool = False,
    ) -> None:  # fmt: skip
        outcome = Outcome(
            step, host, rank.rank if rank else None, rank.pid if rank else None, shlex.join(argv),
            answer.state, answer.exit_code, round(answer.elapsed_s, 3), file, answer.reason,
        )  # fmt: skip
        with self._lock:
            self.outcomes.append(outcome)

    def _sum_up(self) -> Capture:
        worlds = [rank.world for rank in self.ranks if rank.world]
        world = self.plan.world or max(worlds, default=None)
        seen = {rank.rank for rank in self.ranks if rank.rank is not None}
        for host in self.plan.hosts:
            if host not in self.answered:
                self.missing.setdefault(host, "it was not asked: the capture ended before")
        order = {host: at for at, host in enumerate(self.plan.hosts)}
        step_order = {step.id: at for at, step in enumerate(self.plan.steps)}
        return Capture(
            outcomes=tuple(
                sorted(
                    self.outcomes, key=lambda o: (step_order.get(o.step, -1), order.get(o.host, -1))
                )
            ),
            ranks=tuple(sorted(self.ranks, key=lambda r: (r.rank is None, r.rank or 0, r.pid))),
            last_lines=tuple(sorted(self.last_lines, key=lambda r: (r.rank is None, r.rank or 0))),
            answered=dict(self.answered),
            missing_hosts=dict(self.missing),
            missing_ranks=tuple(sorted(set(range(min(world or 0, 1 << 20))) - seen)),
            world=world,
            notes=(*self.notes, *_twice(self.ranks)),
            stopped=self.stop.is_set(),
            elapsed_s=round(time.monotonic() - self.begun, 1),
        )


def _twice(ranks: Iterable[Rank]) -> Iterable[str]:
    """Ranks that several hosts claim: two jobs, or one that was started twice."""
    places: dict[int, list[str]] = {}
    for rank in ranks:
        if rank.rank is not None:
            places.setdefault(rank.rank, []).append(rank.host)
    return (
        f"rank {rank} runs on {', '.join(sorted(hosts))}: two jobs, or one that was started twice"
        for rank, hosts in sorted(places.items())
        if len(hosts) > 1
    )


def _same(asked: str, name: str) -> bool:
    """The name asked for may carry a user and a domain; an address says nothing."""
    short = asked.rpartition("@")[2].rpartition("/")[2]
    if short.replace(".", "").isdigit() or ":" in short:
        return True
    return short.partition(".")[0].lower() == name.partition(".")[0].lower()


def _text(answer: Answer) -> str:
    return answer.output.decode("utf-8", errors="replace")


def _join(tasks: Iterable[Future[None]]) -> None:
    done, _ = wait(list(tasks), return_when=FIRST_EXCEPTION)
    for task in done:
        task.result()
