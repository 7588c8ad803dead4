"""A model that never answers holds up nobody's verdict."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from firstfault.conversation.answerer import AnswerPart, Question
from firstfault.incidents.acceptance import PastedText
from firstfault.incidents.events import EventKind
from firstfault.service import NewIncident, open_service
from firstfault.settings import Settings

LOG = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


@dataclass
class StalledModel:
    """Says nothing until the test ends."""

    release: threading.Event = field(default_factory=threading.Event)
    explains: bool = True
    repeatable: bool = False

    def explain(self, asked: Question) -> Iterator[AnswerPart]:
        self.release.wait(60)
        return iter(())

    answer = explain


def test_verdicts_arrive_while_the_model_stalls(tmp_path: Path) -> None:
    model = StalledModel()
    settings = Settings(data=tmp_path, worker_threads=1)
    service = open_service(settings, model)
    try:
        for number in range(6):
            incident = service.start(
                NewIncident((PastedText(f"{LOG}{number}"),), "why?"), f"k{number}"
            )
            kinds = (event.kind for event in service.follow(incident, 0, 30))
            assert EventKind.VERDICT in kinds
            assert not model.release.is_set()
    finally:
        model.release.set()
        service.close()
