"""Which blanks of a command does the evidence fill, and which are left for the person?

Pages write `NODE`, `PCI` or `<pid>` where every incident has a name of its own. What the evidence names is put in;
what it does not name is listed, so that nobody runs a command with a placeholder in it. An adapter or a drive that a
page names as an example becomes the one that the log names.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from firstfault.investigation.diagnosis import CitationKind, Diagnosis
from firstfault.investigation.scheduler import advised_for, keep_lines
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category
from firstfault_tools.kept_forms import compile_kept

MOST_READ = 60
"""Quoted lines that are looked at for a name: those of the verdict come first."""

CLOUDS = frozenset({"aws", "az", "gcloud", "oci"})
"""Command lines of clouds."""

POD = "pod"
PASTED = "pasted.txt"
"""Name of what was pasted: no file that a command could read."""

_POD_NAME = expression(r"^[a-z][a-z0-9-]*-(?:master|worker|launcher|head|server|agent)s?(?:-\d+)+$")
"""How PyTorchJob, MPIJob, RayCluster and the like call the pods of a job."""

_EXAMPLES = (expression(r"\bmlx5_\d+\b"), expression(r"\bnvme\d+(?:n\d+)?\b"))
"""Devices that pages name as an example: adapters and drives."""


@dataclass(frozen=True, slots=True)
class Blank:
    """A name that a command leaves open: how pages spell it, where its value stands, and how a person is asked.

    find: in what the verdict quotes. anywhere: in any line that was read, where all that name it name the same.
    known_by: what it is called where its whole name stands nowhere, so that the person knows which one is meant.
    """

    name: str
    words: tuple[str, ...]
    field: str
    find: tuple[str, ...]
    anywhere: tuple[str, ...]
    say: str
    known_by: str = ""

    @property
    def spelled(self) -> re.Pattern[str]:
        """The words as they stand for themselves: no variable, no part of a pattern or of a longer name."""
        return compile_kept(
            rf"(?<![\w$/|.{{-])(?:{'|'.join(map(re.escape, self.words))})(?![\w=|}}-])"
        )


@lru_cache(maxsize=1)
def _blanks() -> tuple[Blank, ...]:
    rows = json.loads(Path(__file__).with_name("blanks.json").read_text(encoding="utf-8"))
    return tuple(
        Blank(
            r["name"], tuple(r["spelled"]), r["field"], tuple(r["find"]), tuple(r.get("anywhere", ())), r["say"],
            r.get("known_by", ""),
        )
        for r in rows
    )  # fmt: skip


def find_names(text: str) -> dict[str, str]:
    """What lines of logs and artefacts name once and for all: the pod, its container and image, the job."""
    found = {}
    for blank in _blanks():
        values = {m[1] for p in blank.anywhere for m in expression(p).finditer(text)}
        if len(values) == 1:
            found[blank.name] = values.pop()
    return found


def fill_command(command: str, diagnosis: Diagnosis) -> tuple[str, tuple[str, ...]]:
    """(the lines for the job's scheduler with what the evidence names, what is left to be put in: `NODE, the name of
    the node`)."""
    command = keep_lines(command, diagnosis.schedulers)
    if not command:
        return command, ()
    left = []
    for blank in _blanks():
        # expressions are compiled where a command holds the words, which few do
        found = blank.spelled.search(command) if any(w in command for w in blank.words) else None
        if found is None:
            continue
        value = _value(blank, diagnosis)
        if value:
            command = blank.spelled.sub(lambda _, v=value: v, command)  # type: ignore[misc]
        else:
            left.append(f"{found[0]}, {_ask(blank, diagnosis)}")
    return _name_devices(command, diagnosis), tuple(left)


def keep_first_step(command: str, diagnosis: Diagnosis) -> str:
    """Of the lines of clouds those of the one that the evidence shows. Of the lines for a scheduler those that need the
    fewest names from the person, and no other name than the first of them: what a fix says in words besides (start
    again elsewhere), everybody does in their own way."""
    command = _keep_cloud(command, diagnosis)
    steps: dict[frozenset[str], list[tuple[frozenset[str], str]]] = {}
    for line in command.split("\n"):
        if not line.startswith("# ") and (owners := advised_for(line)):
            wanted = frozenset(fill_command(line, diagnosis)[1])
            steps.setdefault(owners, []).append((wanted, line))
    left = set()
    for lines in steps.values():
        least = min(len(wanted) for wanted, _ in lines)
        first = next(wanted for wanted, _ in lines if len(wanted) == least)
        left |= {line for wanted, line in lines if len(wanted) > least or not wanted <= first}
    return "\n".join(line for line in command.split("\n") if line not in left)


def _keep_cloud(command: str, diagnosis: Diagnosis) -> str:
    """The lines for the cloud whose command line was used in what was handed in, else those for the hosts themselves;
    all of them where there are no others."""
    lines = command.split("\n")
    of_cloud = [line.partition(" ")[0] for line in lines]
    shown = CLOUDS.intersection(of_cloud, diagnosis.handed_in)
    if shown:
        return "\n".join(x for x, tool in zip(lines, of_cloud, strict=True) if tool in shown)
    others = [x for x, tool in zip(lines, of_cloud, strict=True) if tool not in CLOUDS]
    return "\n".join(others) if others and any(not x.startswith("#") for x in others) else command


def _ask(blank: Blank, diagnosis: Diagnosis) -> str:
    """What a person is asked for. A node without a name is that of the failing rank, else of the deciding file."""
    if blank.field == "host":
        return name_node(diagnosis) or blank.say
    line = diagnosis.first_line.text if diagnosis.first_line is not None else ""
    known = expression(blank.known_by).search(line) if blank.known_by else None
    return f"the path of {known[1]}" if known is not None else blank.say


def name_node(diagnosis: Diagnosis) -> str:
    """A node without a name, in words; '' where nothing tells which it is."""
    if diagnosis.first_failing_rank is not None:
        return f"the node of rank {diagnosis.first_failing_rank}"
    if diagnosis.struck.part and (diagnosis.signature or "").startswith("network."):
        return f"the node behind {diagnosis.struck.part}"
    of_node = (diagnosis.signature or "").startswith(("hardware.", "kernel."))
    file = _log(diagnosis) if of_node or diagnosis.category is Category.HARDWARE else ""
    return f"the node that {file} comes from" if file else ""


def fill_commands(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with the blanks of its fixes and of what to collect filled in."""
    return replace(
        diagnosis,
        fixes=tuple(
            replace(f, command=fill_command(f.command, diagnosis)[0] or None) if f.command else f for f in diagnosis.fixes
        ),
        next_artefacts=tuple(
            replace(a, command=fill_command(a.command, diagnosis)[0]) for a in diagnosis.next_artefacts
        ),
    )  # fmt: skip


def find_value(name: str, diagnosis: Diagnosis) -> str:
    """What the evidence names for a blank, '' where it names nothing."""
    return next((_value(blank, diagnosis) for blank in _blanks() if blank.name == name), "")


def _name_devices(command: str, diagnosis: Diagnosis) -> str:
    """The one adapter or drive that a page names as an example becomes the one of the evidence."""
    for device in _EXAMPLES:
        if len(set(device.findall(command))) == 1:
            named = next((m[0] for text in _told(diagnosis) if (m := device.search(text))), "")
            command = device.sub(named, command) if named else command
    return command


def _value(blank: Blank, diagnosis: Diagnosis) -> str:
    known = {"host": diagnosis.host or "", "gpu": diagnosis.gpu or "", "log": _log(diagnosis)}
    if blank.field in known and not blank.find:
        value = known[blank.field]
        return "" if value == "localhost" else value
    texts = [known[blank.field]] if blank.field in known else []
    # beside the index of a GPU another device may be quoted: there only the verdict's own sentence tells
    is_index = bool(blank.field) and texts[0].startswith("GPU")
    texts += [diagnosis.root_cause] if is_index else _told(diagnosis)
    for text in texts:
        for pattern in blank.find:
            if found := re.search(pattern, text):
                return found[1]
    named = diagnosis.named.get(blank.name, "")
    if blank.name == POD and diagnosis.host not in (None, named):
        # another pod of the job may be the one that was looked at
        return diagnosis.host if _is_pod(diagnosis) else ""
    return named or _by_place(blank, diagnosis)


def _is_pod(diagnosis: Diagnosis) -> bool:
    """The host is called as controllers call their pods: within a container the host name is that of the pod."""
    host = diagnosis.host or ""
    return diagnosis.schedulers == ("kubernetes",) and _POD_NAME.search(host) is not None


def _by_place(blank: Blank, diagnosis: Diagnosis) -> str:
    """The index of a GPU is the rank on its host where nothing maps them otherwise."""
    local = diagnosis.local_rank if blank.field == "gpu" and "GPU_INDEX" in blank.words else None
    return "" if local is None else str(local)


def _told(diagnosis: Diagnosis) -> list[str]:
    """What the verdict's own sentence and the quoted lines say, the deciding line first."""
    quotes = {c.n: c.quote for c in diagnosis.citations if c.kind is not CitationKind.PAGE}
    main = [quotes[n] for h in diagnosis.hypotheses[:1] for n in h.for_ if n in quotes]
    first = [diagnosis.first_line.text] if diagnosis.first_line is not None else []
    return [*first, diagnosis.root_cause, *main, *quotes.values(), *diagnosis.input.files][:MOST_READ]  # fmt: skip


def _log(diagnosis: Diagnosis) -> str:
    """The file that the verdict rests on, where it was given as a file."""
    files = diagnosis.input.files
    first = diagnosis.first_line
    name = first.file if first is not None else (files[0] if files else "")
    return name if "." in name and " " not in name and name != PASTED else ""
