"""How far is an exam that somebody started on the page? It goes on while they look elsewhere."""

from __future__ import annotations

import logging
import threading
from dataclasses import field
from typing import TYPE_CHECKING

from firstfault.agent.exam.sitting import Grade, conclude, load_incidents, sit
from firstfault.agent.exam.standing import Standing, save_marks
from firstfault.agent.failures import EndpointAway
from firstfault_tools.dataclass import dataclass

if TYPE_CHECKING:
    from firstfault.agent.model import Model
    from firstfault.investigation.knowledge import Knowledge
    from firstfault.settings import Settings

log = logging.getLogger(__name__)


@dataclass
class ExamRun:
    """One exam in a thread of its own. `standing` is None until it is over; `problem` says why it ended early."""

    settings: Settings
    model: Model
    knowledge: Knowledge
    seed: int
    limit: int = 0
    grades: list[Grade] = field(default_factory=list)
    standing: Standing | None = None
    problem: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def count(self) -> int:
        """Incidents to sit."""
        return self.limit or len(load_incidents())

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread = threading.Thread(target=self.run, name="exam", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the incident that is being sat; nothing is kept."""
        self._stop.set()

    def run(self) -> None:
        """Sit the incidents until the result is decided, and keep it; a part that decides nothing is not kept."""
        sitting = sit(
            self.model, self.knowledge, seed=self.seed, limit=self.limit, stop=self._stop.is_set
        )
        try:
            self.grades.extend(sitting)
        except EndpointAway as error:
            self.problem = str(error)
            return
        if self._stop.is_set():
            self.problem = "the exam was stopped"
            return
        endpoint = self.model.endpoint
        marks = conclude(self.grades, self.limit, (endpoint.price_in, endpoint.price_out))
        if marks.decides:
            self.standing = save_marks(self.settings, endpoint, marks)
        else:
            self.problem = "only a part of the exam was sat"
