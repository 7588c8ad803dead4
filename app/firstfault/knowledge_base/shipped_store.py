"""Which entries are nearest, without a database? Shipped vectors in memory, compared one by one.

A command that answers one question has them in a tenth of the time that opening a store takes; a few
thousand comparisons take a millisecond. Entries whose vector is not shipped are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from firstfault.knowledge_base.store import Entry, Kind, text_key


class ShippedStore:
    """Vectors of the entries that were shipped with one."""

    def __init__(
        self, entries: Sequence[Entry], shipped: Mapping[str, list[float]], embedder: str
    ) -> None:
        import numpy as np

        self._ids: dict[Kind, list[str]] = {}
        self._rows: dict[Kind, Any] = {}
        for kind in Kind:
            pairs = [
                (e.id, vector)
                for e in entries
                if e.kind is kind and (vector := shipped.get(text_key(e.text, embedder)))
            ]
            self._ids[kind] = [i for i, _ in pairs]
            self._rows[kind] = np.array([v for _, v in pairs], dtype=np.float32)

    def nearest(self, vector: list[float], limit: int, kind: Kind) -> list[tuple[str, float]]:
        """(entry id, cosine similarity) of the nearest entries of a kind, best first."""
        import numpy as np

        rows = self._rows[kind]
        if not len(rows):
            return []
        near = rows @ np.array(vector, dtype=np.float32)
        order = np.argsort(-near)[:limit]
        return [(self._ids[kind][n], float(near[n])) for n in order]
