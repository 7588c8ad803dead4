"""Which part of the system is at fault, where its category holds several?

`Environment` is storage as well as packages: nobody who reads that a quota is used up looks at images. Which page is of
which part is data: parts.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from firstfault.investigation.diagnosis import Diagnosis


@cache
def load_parts() -> Mapping[str, str]:
    """Part by page."""
    told = json.loads(Path(__file__).with_name("parts.json").read_text(encoding="utf-8"))
    return {page: part for part, pages in told.items() for page in pages}


def find_part(diagnosis: Diagnosis) -> str:
    """`storage`, of the first page that the verdict rests on; '' where the category says enough."""
    return load_parts().get(diagnosis.cited_page, "")
