"""Which pod does a line name, and to which job does a pod belong?"""

from __future__ import annotations

import re

from firstfault_tools.expressions import expression

_PREFIX = expression(r"^\s*\[pod/(?P<pod>[a-z0-9][\w.-]*)/")
_NAMED = expression(
    r"\bpods?/(?P<slash>[a-z0-9][a-z0-9.-]*)|\b[Pp]od[ :=]+\"?(?:[a-z0-9-]+/)?(?P<word>[a-z0-9][a-z0-9.]*-[a-z0-9.-]*)"
)


def pod_of(text: str) -> str | None:
    """Pod that an event or a log line names, or None."""
    match = _PREFIX.match(text)
    if match is not None:
        return match["pod"]
    match = _NAMED.search(text)
    return (match["slash"] or match["word"]) if match is not None else None


def family_of(pod: str) -> str:
    """Name of the job a pod belongs to: without replica index, hash and role."""
    stem = re.sub(r"(?:-[a-z0-9]{8,10}-[a-z0-9]{5}|-\d+(?:-\d+)*(?:-[a-z0-9]{5})?)$", "", pod)
    return re.sub(r"-(?:worker|master|launcher|chief|ps|head|leader|trainer|node)$", "", stem)
