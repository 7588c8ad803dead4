"""Which page holds the fixes of what a tool reports? Data beside the kinds; a signature names its own page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path


def page_of_kind(kind: str) -> str | None:
    """Id of the page of a kind of finding, None where the table has none."""
    return _table().get(kind)


@cache
def _table() -> Mapping[str, str]:
    return dict(json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")))
