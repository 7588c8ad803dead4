"""Was an object refused for what it is, or because the process has too many like it?

`Operation not permitted` (EPERM), `Cannot allocate memory` (ENOMEM) or `Resource temporarily unavailable`
(EAGAIN) from mmap, open, a socket or a thread reads like access rights or full memory. After many calls
alike that went well, and with a check that the file itself can be read, it is a limit on their number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.log.traceback import Traceback

ERRNO = expression(r"\[Errno (?P<number>1|11|12|23|24)\]")
_OBJECTS = (
    ("memory map (mmap)", "memory maps (mmap)", expression(r"mmap\.mmap\(|\bmemmap\(|\bmmap\(|mmap_mode|memory_map\(|/memmap\.py")),
    ("shared-memory segment", "shared-memory segments", expression(r"shm_open|SharedMemory\(")),
    ("thread or process", "threads or processes", expression(r"start_new_thread|os\.fork\(|Popen\(|_start_thread|\.start\(\)")),
    ("socket", "sockets", expression(r"\bsocket\(|socket\.socket")),
    ("file", "open files", expression(r"(?<![\w.])open\(|os\.open\(|\bfopen\b")),
)  # fmt: skip
_READABLE = expression(r"^\s*-r[-w][-x]\S*\s+\d+\s+\S+\s+\S+\s+\d+\s")
_MAPS = expression(r"max_map_count ?[=:]? ?(?P<value>\d{4,8})")
_NETWORK = expression(
    r"/(?P<name>weka\w*|lustre\w*|gpfs\w*|beegfs\w*|juicefs\w*|ceph\w*|fsx\w*|nfs\w*|daos\w*|vast\w*|quobyte\w*|s3\w*|gcs\w*|fuse\w*)/"
)
_ITEM = expression(r"/[\w.-]+/\S*\d|\d+ of \d+|\b\d{2,}\b")
_INODES = expression(r"\s(?P<share>9[89]|100)%\s+/")
_LIMIT = expression(r"ulimit -(?:S|H)?(?P<flag>[nu])\b|(?P<pids>pids\.max)\b")
_VALUE = expression(r"^\s*(?P<value>\d{2,9})\s*$")
LEAST_ALIKE, LOOKED_BACK, LOOKED_AFTER = 4, 40, 60


def explain_refusal(incident: LogIncident, finding: Finding) -> Finding:
    """A refusal told as a limit of the number of objects, where calls alike went well before it."""
    place = finding.evidence[0] if finding.evidence else None
    code = ERRNO.search(place.text) if place is not None else None
    stack = next(
        (
            t
            for t in incident.tracebacks
            if place is not None and (t.line.file, t.line.number) == (place.file, place.line)
        ),
        None,
    )
    if place is None or code is None or stack is None or not stack.frames:
        return finding
    digest = incident.digest_of(place.file)
    objects = _name_object(digest, stack)
    if objects is None:
        return finding
    alike = _count_alike(digest, stack.start)
    readable = _find_readable(digest, place.line)
    if alike is None and readable is None:
        return finding
    one, many = objects
    words = {"1": "EPERM", "11": "EAGAIN", "12": "ENOMEM", "23": "ENFILE", "24": "EMFILE"}
    said = f"{words[code['number']]} on the next {one}"
    after = (
        f" after at least {alike[0]} like «{' '.join(alike[1][1].split())[-100:]}» had gone well"
        if alike
        else ""
    )
    checked = ", and the pasted check shows that the file itself can be read" if readable else ""
    system = next((m for _, t in digest.kept[-4000:] if (m := _NETWORK.search(t))), None)
    whose = f"the client of the file system ({system['name']}), " if system is not None else ""
    counts = next(((r, m) for r in digest.kept[-4000:] if (m := _MAPS.search(r[1]))), None)
    limits = (
        f"{whose}the kernel (vm.max_map_count) or the container"
        if "map" in one
        else f"{whose}ulimit -n / -u, the pids cgroup or the container"
    )
    kernel = f"; vm.max_map_count is {counts[1]['value']}" if counts and "map" in one else ""
    quoted = [*finding.evidence[:2]]
    for row in (alike[1] if alike else None, readable, counts[0] if counts and kernel else None):
        if row is not None:
            quoted.append(quote_line(digest.file, row[0], row[1]))
    return replace(
        finding,
        title=f"a limit on the number of {many} of one process is reached: {said}{after}{checked}; not access rights "
        f"nor a broken file; the limit is that of {limits}{kernel}: map or open fewer at once (merge files, read "
        "without mmap) or raise it",
        level=Level.CAUSE,
        category=Category.ENVIRONMENT,
        confidence=Confidence.LIKELY,
        evidence=tuple(quoted),
        page="file-and-process-limits",
    )


def name_pasted_limit(incident: LogIncident, finding: Finding) -> Finding:
    """A limit that was reached, with its value where the user pasted it: inodes, `ulimit -n` or `-u`, pids.max."""
    for digest in incident.digests:
        rows = [r for r in digest.kept[-4000:] if len(r[1]) < 200]
        for (_, asked), row in pairwise(rows):
            words = ""
            if "IUse%" in asked and (used := _INODES.search(row[1])) and "full" in finding.kind:
                words = f"; the inodes of the file system are used up (df -i: {used['share']}%), its bytes are not: too many small files"
            elif (limit := _LIMIT.search(asked)) and (value := _VALUE.match(row[1])):
                fits = (
                    "files" in finding.kind if limit["flag"] == "n" else "process" in finding.kind
                )
                words = (
                    f"; the limit there is {value['value']}, as `{limit[0]}` shows" if fits else ""
                )
            if words:
                quoted = Evidence(digest.file, row[0], row[1].strip())
                return replace(
                    finding, title=finding.title + words, evidence=(*finding.evidence, quoted)
                )
    return finding


def _name_object(digest: FileDigest, stack: Traceback) -> tuple[str, str] | None:
    """What the innermost frames were making."""
    for frame in reversed(stack.frames[-3:]):
        at = digest.position(frame.number)
        source = " ".join(t for _, t in digest.kept[at : at + 2])
        for one, many, pattern in _OBJECTS:
            if pattern.search(source[:1200]):
                return one, many
    return None


def _count_alike(digest: FileDigest, start: int) -> tuple[int, tuple[int, str]] | None:
    """How often the line was printed that numbers an object, and its last one before `start`."""
    at = digest.position(start)
    near = [r for r in digest.kept[max(0, at - LOOKED_BACK) : at] if _ITEM.search(r[1])]
    shapes = Counter(_shape(t) for _, t in near)
    shape, count = max(shapes.items(), key=lambda s: s[1], default=("", 0))
    if count < LEAST_ALIKE:
        return None
    rows = [r for r in digest.kept[:at] if _shape(r[1]) == shape]
    return len(rows), rows[-1]


def _shape(text: str) -> str:
    return re.sub(r"\d+", "0", text[:300]).strip()


def _find_readable(digest: FileDigest, number: int) -> tuple[int, str] | None:
    """A line of `ls -l` below the failure that shows a file which the user can read."""
    at = digest.position(number)
    rows: Sequence[tuple[int, str]] = digest.kept[at : at + LOOKED_AFTER]
    return next((r for r in rows if _READABLE.match(r[1])), None)
