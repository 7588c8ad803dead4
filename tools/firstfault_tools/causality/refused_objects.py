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
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.log.traceback import Traceback

ERRNO = expression(r"\[Errno (?P<number>1|11|12|23|24)\]")
_ERRORS = {"1": "EPERM", "11": "EAGAIN", "12": "ENOMEM", "23": "ENFILE", "24": "EMFILE"}
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
_LIMIT_ROW = expression(
    r"^(?:\S+: )?(?:open files|max user processes|max locked memory)\s+\((?:kbytes, )?(?P<option>-(?P<flag>[nul]))\)\s+(?P<value>\d{2,9})\s*$"
)
"""A row of `ulimit -a`."""
_LIMITED = {"n": "files", "u": "process", "l": "memlock"}
_VALUE = expression(r"^\s*(?P<value>\d{2,9})\s*$")
_QUOTA = expression(
    r"(?<!\S)(?P<used>\d[\d.]*[kKMGT]?)\*\s+(?P<soft>\d[\d.]*[kKMGT]?)\s+(?P<hard>\d[\d.]*[kKMGT]?)(?!\S)"
)
"""The columns of `quota` and `lfs quota`: a star stands behind what is above its limit."""
_QUOTA_OF = expression(
    r"Disk quotas for (?P<kind>us[e]?r|gr(?:ou)?p|pr(?:oject|j)) (?P<name>[\w.-]{1,64})"
)
_AMOUNT = expression(r"(?<!\S)(?:\d[\d.]*[kKMGT]?|none|-|\d+days)\*?(?!\S)")
_USE = expression(r"\s(?P<share>\d{1,2})%\s+/")
_SAVED = expression(
    r"(?:-[-rwxsStT]{9}\S?\s+\d+\s+\S+\s+\S+\s+|\s*)(?P<size>\d[\d.]*[kKMGT]?)\s+(?:\S+ +\S+(?: +\S+)?\s+)?(?P<name>[\w./-]*[A-Za-z_][\w./-]*)$"
)
"""A row of `ls -l`, `ls -lh`, `du` or `aws s3 ls`."""
_GLIBC = expression(r"GLIBC_(\d\.\d{1,2})")
_LIBC = expression(
    r"(?i)\bldd \([^)]*\) (\d\.\d{1,2})\b|\b(?:g?libc)\b[ \w]{0,12}[-:= ]{1,3}(?:glibc[- ])?(\d\.\d{1,2})\b"
)
_HOST_ALONE = expression(r"(?=[\w.-]{0,62}[a-z])[A-Za-z][\w.-]{1,62}\s*$")
LEAST_ALIKE, LOOKED_BACK, LOOKED_AFTER = 4, 40, 60


def explain_refusal(incident: LogIncident, finding: Finding) -> Finding:
    """A refusal told as a limit of the number of objects, where calls alike went well before it."""
    place = finding.evidence[0] if finding.evidence else None
    code = ERRNO.search(place.text) if place is not None else None
    stack = _stack_at(incident, place) if place is not None else None
    if place is None or code is None or stack is None or not stack.frames:
        return finding
    digest = incident.digest_of(place.file)
    objects = _name_object(digest, stack)
    alike = _count_alike(digest, stack.start)
    readable = _find_readable(digest, place.line)
    if objects is None or (alike is None and readable is None):
        return finding
    one, many = objects
    said = f"{_ERRORS[code['number']]} on the next {one}"
    after = (
        f" after at least {alike[0]} like «{' '.join(alike[1][1].split())[-100:]}» had gone well"
        if alike
        else ""
    )
    checked = ", and the pasted check shows that the file itself can be read" if readable else ""
    limits, shown = _name_limits(digest, "map" in one)
    rows = (alike[1] if alike else None, readable, shown)
    quoted = (quote_line(digest.file, row[0], row[1]) for row in rows if row is not None)
    return replace(
        finding,
        title=f"a limit on the number of {many} of one process is reached: {said}{after}{checked}; not access rights "
        f"nor a broken file; the limit is that of {limits}: map or open fewer at once (merge files, read "
        "without mmap) or raise it",
        level=Level.CAUSE,
        category=Category.ENVIRONMENT,
        confidence=Confidence.LIKELY,
        evidence=(*finding.evidence[:2], *quoted),
        page="file-and-process-limits",
    )


def _stack_at(incident: LogIncident, place: Evidence) -> Traceback | None:
    """The stack that a line ends."""
    stacks = incident.tracebacks
    return next(
        (t for t in stacks if (t.line.file, t.line.number) == (place.file, place.line)), None
    )


def _name_limits(digest: FileDigest, maps: bool) -> tuple[str, tuple[int, str] | None]:
    """Whose limit it may be, by the file system that the log names, and the line that shows the value for maps."""
    rows = digest.kept[-4000:]
    system = next((m for _, t in rows if (m := _NETWORK.search(t))), None)
    whose = f"the client of the file system ({system['name']}), " if system is not None else ""
    if not maps:
        return f"{whose}ulimit -n / -u, the pids cgroup or the container", None
    limits = f"{whose}the kernel (vm.max_map_count) or the container"
    shown = next(((r, m) for r in rows if (m := _MAPS.search(r[1]))), None)
    if shown is None:
        return limits, None
    return f"{limits}; vm.max_map_count is {shown[1]['value']}", shown[0]


def name_pasted_limit(incident: LogIncident, finding: Finding) -> Finding:
    """A limit that was reached, with its value where the user pasted it: inodes, quota, C library, `ulimit -n` or `-u`, pids.max.

    Where a write failed, also the file that it left cut short.
    """
    for digest in incident.digests:
        rows = [r for r in digest.kept[-4000:] if len(r[1]) < 200]
        words, quoted = _read_pasted(finding, rows)
        if _is_full(finding) and (cut := _find_cut_file(rows)):
            words, quoted = words + cut[0], [*quoted, *cut[1]]
        if words:
            told = tuple(Evidence(digest.file, n, text.strip()) for n, text in quoted)
            return replace(
                finding, title=finding.title + words, evidence=(*finding.evidence, *told)
            )
    return finding


def _is_full(finding: Finding) -> bool:
    return "full" in finding.kind


def _read_pasted(
    finding: Finding, rows: Sequence[tuple[int, str]]
) -> tuple[str, list[tuple[int, str]]]:
    """What the first table or answer of a command says of the limit, and its lines."""
    words, quoted = "", list[tuple[int, str]]()
    if "library-old" in finding.kind:
        words, quoted = _read_libraries(finding, rows)
    elif _is_full(finding):
        words, quoted = _read_quota(rows)
    if words:
        return words, quoted
    for (_, asked), row in pairwise(rows):
        words = _tell_limit(finding, asked, row[1])
        if words:
            return words, [row]
    return "", []


def _tell_limit(finding: Finding, asked: str, text: str) -> str:
    """The limit in the row below a heading or a command."""
    if _is_full(finding) and "IUse%" in asked and (used := _INODES.search(text)):
        return f"; the inodes of the file system are used up (df -i: {used['share']}%), its bytes are not: too many small files"
    shown = _LIMIT_ROW.match(text)
    if shown is not None and _LIMITED[shown["flag"]] in finding.kind:
        unit = " kB" if shown["flag"] == "l" else ""
        return f"; the limit there is {shown['value']}{unit}, as `ulimit {shown['option']}` shows"
    limit, value = _LIMIT.search(asked), _VALUE.match(text)
    if limit is None or value is None:
        return ""
    fits = "files" in finding.kind if limit["flag"] == "n" else "process" in finding.kind
    return f"; the limit there is {value['value']}, as `{limit[0]}` shows" if fits else ""


def _read_quota(rows: Sequence[tuple[int, str]]) -> tuple[str, list[tuple[int, str]]]:
    """What `quota` or `lfs quota` marks with a star, and the row of `df` that shows room all the same."""
    for place, (_, text) in enumerate(rows):
        found = _QUOTA.search(text) if "*" in text else None
        if found is None:
            continue
        what = "files" if len(_AMOUNT.findall(text[: found.start()])) >= 3 else "bytes"
        above = (
            m for _, t in reversed(rows[max(0, place - 6) : place]) if (m := _QUOTA_OF.search(t))
        )
        owner = next(above, None)
        whose = f" of {owner['kind']} {owner['name']}" if owner else ""
        words = (
            f"; the quota{whose} is used up ({what}: {found['used']} used, limit {found['hard']})"
        )
        quoted = [rows[place]]
        room = next((r for a, r in pairwise(rows) if "Use%" in a[1] and "IUse%" not in a[1] and (m := _USE.search(r[1])) and int(m["share"]) < 95), None)  # fmt: skip
        if room is not None:
            words += (
                ", while the file system itself has room, as df shows: df knows nothing of quotas"
            )
            quoted.append(room)
        return words, quoted
    return "", []


def _find_cut_file(rows: Sequence[tuple[int, str]]) -> tuple[str, list[tuple[int, str]]] | None:
    """The newest of a numbered family of files in a pasted listing, where it is smaller than its equal elders."""
    families: dict[str, dict[int, tuple[str, str, tuple[int, str]]]] = {}
    for row in rows:
        found = _SAVED.match(row[1]) if row[1][:1] in "-0123456789 " else None
        if found is None or (number := re.search(r"\d+(?=\D*$)", found["name"])) is None:
            continue
        family = families.setdefault(re.sub(r"\d+", "#", found["name"]), {})
        family[int(number[0])] = (found["name"], found["size"], row)
    for family in families.values():
        name, shown, row = family[max(family)]
        elders = [family[n] for n in sorted(family)[:-1]]
        sizes = [_bytes_of(size) for _, size, _ in elders]
        if len(sizes) < 2 or min(sizes) < 0.9 * max(sizes) or _bytes_of(shown) >= 0.9 * min(sizes):
            continue
        words = (
            f"; the write left {name} incomplete (truncated: {shown} against {elders[-1][1]} of {elders[-1][0]}): it is not to be resumed "
            f"from, {elders[-1][0]} is the last whole one"
        )
        return words, [row, elders[-1][2]]
    return None


def _bytes_of(size: str) -> float:
    scale = " KMGT".find(size[-1].upper())
    return float(size.rstrip("kKMGT")) * float(1024 ** max(scale, 0))


def _read_libraries(
    finding: Finding, rows: Sequence[tuple[int, str]]
) -> tuple[str, list[tuple[int, str]]]:
    """Which node has a C library older than the one asked for, and which has one that is new enough."""
    asked = _GLIBC.search(finding.evidence[0].text)
    needed = _version(asked[1]) if asked is not None else (0, 0)
    host: dict[str, str] = {}
    old, new = dict[str, tuple[str, tuple[int, str]]](), dict[str, tuple[str, tuple[int, str]]]()
    for row in rows:
        label, _, body = row[1].rpartition(": ") if row[1][:6].strip().partition(":")[0].isdecimal() else ("", "", row[1])  # fmt: skip
        if label and _HOST_ALONE.match(body) and label not in host:
            host[label] = body.strip()
        told = _LIBC.search(row[1])
        if told is None or "not found" in row[1]:
            continue
        where = host.get(label) or read_prefix(row[1])[0].host or ""
        (old if _version(_told(told)) < needed else new).setdefault(where, (_told(told), row))
    if not old:
        return "", []
    names = " and ".join(f"{h or 'the node'} has glibc {v}" for h, (v, _) in list(old.items())[:3])
    works = next((f"; {h or 'another'} has {v}, which is new enough" for h, (v, _) in new.items() if h not in old), "")  # fmt: skip
    return f"; {names}{works}", [row for _, row in [*old.values(), *new.values()][:4]]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


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


def _told(match: re.Match[str]) -> str:
    return match[1] or match[2]
