"""Which search does a process that lives on use? Shared words at once, vectors beside them once they are loaded."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import field

from firstfault.knowledge_base.search import Found, Method, SearchIndex, open_index
from firstfault_tools.dataclass import dataclass

log = logging.getLogger(__name__)
MOST_KEPT = 64
"""Questions whose nearest ways of asking are kept."""


@dataclass
class WarmSearch:
    """A search whose first answers do not wait for the vectors. Call `warm` where a process is to serve."""

    words: SearchIndex = field(default_factory=lambda: open_index(vectors=False))
    at_once: bool = False
    """The first question waits for the vectors, which stay in memory: for a process that answers one."""
    _near: SearchIndex | None = None
    _asked: dict[str, dict[str, float]] = field(default_factory=dict)
    """What was near to the questions of late: one answer looks a question up several times."""
    _started: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, query: str, limit: int) -> Sequence[Found]:
        self._wait()
        index = self._near or self.words
        return index.search(query, limit, Method.FUSED if self._near else Method.LEXICAL)

    def near_questions(self, query: str) -> dict[str, float]:
        """Phrases of rulings near to a question, with their cosine; empty until warm."""
        self._wait()
        if self._near is None:
            return {}
        found = self._asked.get(query)
        if found is None:
            if len(self._asked) >= MOST_KEPT:
                self._asked.clear()
            found = self._asked[query] = self._near.near_questions(query)
        return found

    def near_statements(self, query: str) -> dict[str, float]:
        """Statements of pages near to a question, with their cosine; empty until warm."""
        self._wait()
        return self._near.near_statements(query) if self._near is not None else {}

    def _wait(self) -> None:
        if self.at_once and not self._started:
            self._started = True
            self.load()

    def warm(self) -> None:
        """Load the vectors in the background, once."""
        with self._lock:
            if self._started:
                return
            self._started = True
        threading.Thread(target=self.load, name="warm-search", daemon=True).start()

    def load(self) -> None:
        """Load the vectors now; where that fails, words alone go on serving."""
        try:
            index = open_index(vectors=True, in_memory=self.at_once)
            index.search("NCCL watchdog timeout", 1)
            index.near_questions("what is a watchdog timeout")
            index.near_statements("what is a watchdog timeout")
        except (OSError, ValueError, RuntimeError, LookupError):
            log.warning("vectors could not be loaded; searching by words alone", exc_info=True)
            return
        if index.vectors is not None:
            self._near = index
