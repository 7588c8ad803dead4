"""Does a pasted line carry a known failure signature? Then its page is the answer, whatever the words.

Deterministic: the same signatures as in a diagnosis, tried on the lines of the query alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Level
from firstfault_tools.log.signature import SignatureSet, load_signatures

LEVEL_BONUS: Mapping[Level, float] = {
    Level.CAUSE: 1.0,
    Level.FAILURE: 0.9,
    Level.BENIGN: 0.9,
    Level.SYMPTOM: 0.8,
    Level.TEARDOWN: 0.6,
    Level.CONTEXT: 0.4,
}
"""Added to a page's score, whose other part lies between 0 and 1: a matched line leads the list."""


@dataclass(frozen=True)
class Recogniser:
    """Signatures below a folder, compiled at the first line that is tried."""

    folder: Path
    pack: Path | None = None

    @cached_property
    def _signatures(self) -> SignatureSet:
        return SignatureSet(load_signatures(self.folder, self.pack))

    def weigh_pages(self, lines: Sequence[str]) -> dict[str, float]:
        """Page id -> bonus for the pages whose signatures match one of `lines`."""
        if not lines or not self.folder.is_dir():
            return {}
        known = self._signatures
        seen = known.match("\n".join(lines).encode(errors="replace"))
        if seen is None:
            return {}
        present = {known.conditions[i] for i in seen.conditions}
        bonus: dict[str, float] = {}
        for index in seen.signatures:
            signature = known.signatures[index]
            if not present.issuperset(signature.needs) or present.intersection(signature.without):
                continue
            if any(known.captures(index, line) is not None for line in lines):
                value = LEVEL_BONUS.get(signature.level, 0.0)
                bonus[signature.page] = max(bonus.get(signature.page, 0.0), value)
        return bonus
