"""What does `diagnose --report FILE` write? The post-mortem of one diagnosis, without a record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from firstfault.errors import UsageError
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.paths import knowledge_folder
from firstfault.postmortem.draft import Draft, draft_report
from firstfault.postmortem.rendering import format_of, render_report


def write_summary(
    diagnosis: Diagnosis, path: Path, files: Mapping[str, Path] | None = None
) -> None:
    """Write the report to `path`, in the format of its suffix; .md where it has none.

    `files` is the evidence by display name; without it only the quoted lines are known.
    """
    target = path if path.suffix else path.with_suffix(".md")
    form = format_of(target)
    draft = Draft(
        title="",
        incident="",
        diagnosis=diagnosis,
        files=dict(files or {}),
        knowledge=knowledge_folder(),
    )
    try:
        target.write_bytes(render_report(draft_report(draft), form))
    except OSError as error:
        raise UsageError(f"{target}: cannot be written ({error.strerror})") from error
