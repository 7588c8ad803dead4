"""How do many followers learn of progress? They share one question to the database.

Twenty people who each ask ten times a second keep a small machine busier than the analysis that
they wait for. Here whoever finds the last answer too old asks for all followed incidents at once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field

from firstfault.incidents.store import IncidentProgress, IncidentStore
from firstfault_tools.dataclass import dataclass

FRESH_SECONDS = 0.05


@dataclass
class Watch:
    """Progress of the incidents that threads of this process follow."""

    incidents: IncidentStore
    _followed: Counter[str] = field(default_factory=Counter)
    _known: Mapping[str, IncidentProgress] = field(default_factory=dict)
    _asked: float = float("-inf")
    _counting: threading.Lock = field(default_factory=threading.Lock)
    _asking: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def follow(self, incident: str) -> Iterator[None]:
        """Within it the incident is asked for together with those that others follow."""
        with self._counting:
            self._followed[incident] += 1
        try:
            yield
        finally:
            with self._counting:
                self._followed[incident] -= 1
                self._followed += Counter()

    def progress(self, incident: str, age: float = FRESH_SECONDS) -> IncidentProgress | None:
        """Progress of a followed incident, at most `age` seconds old; None when it is gone.

        The first question of a follower has age 0: it knows nothing that was asked before it came.
        """
        since = time.monotonic() - age
        with self._asking:
            if self._asked < since:
                # before the list is read: whoever joins later finds this answer too old
                asked = time.monotonic()
                with self._counting:
                    wanted = tuple(self._followed)
                self._known = self.incidents.progress(wanted)
                self._asked = asked
            return self._known.get(incident)
