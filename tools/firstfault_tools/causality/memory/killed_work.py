"""What was a process doing when it was killed, and how had host memory moved until then?

A kill from outside prints no reason. Where the work was of a kind that fills host memory (loading, building
optimizer states on the CPU, keeping outputs of an evaluation, gathering a checkpoint, preprocessing), that
work and the trend of the memory figures in the log are the reason to look at first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.log.digest import FileDigest

BEFORE_KILL = 60
"""Lines before a kill in which the work it interrupted is looked for."""
SPAN = 400
"""Lines before a kill in which figures of host memory are looked for."""
CLIMBED, NEARLY_FULL, FULL = 1.5, 85.0, 90.0
FREE_LINES = 4_000
ADAM_BYTES = 8
"""Adam keeps two fp32 numbers for each parameter."""
PAGE = "host-memory-oom-kill"

_LOADING = expression(
    r"(?i)loading checkpoint shards|loading & quantizing|loading (?:the )?(?:base |pretrained )?(?:model|weights|checkpoint)|"
    r"loading safetensors|map_location=.?cpu|synchronizing model states|sync_model_states|from_pretrained|"
    r"converting checkpoint|merging (?:lora|adapter|shards|weights)|loaded \d+ of \d+ shards"
)
_OPTIMIZER = expression(
    r"(?i)(?:before|after) (?:creating fp(?:16|32) partitions|initializ\w+ optimizer|creating fp32)|initializ\w+ (?:the )?optimizer states?|"
    r"creating (?:the )?(?:cpu ?adam|optimizer states?)|Adam Optimizer #\d+ is created|cpu_adam"
)
_EVALUATION = expression(
    r"(?i)\*{3,} ?running (?:evaluation|prediction)|\bevaluating\b|running (?:evaluation|validation)|"
    r"validation (?:dataloader|loop|epoch)|\bstart(?:ing|ed)? (?:the )?(?:evaluation|validation)|\bpredicting\b"
)
_SAVING = expression(
    r"(?i)saving (?:the )?(?:full |model |final |training )*(?:checkpoint|state|model|weights)|gather\w* (?:the )?(?:full |model )*(?:state|weights|parameters)|"
    r"full_state_dict|consolidat\w+ (?:the )?(?:state|weights|shards|checkpoint)|saving model checkpoint to|zero_to_fp32"
)
_PREPARING = expression(
    r"(?i)running tokenizer on|\b(?:map|filter|tokeniz\w+|grouping texts[^(]{0,30}|generating \w+ split)\b ?\(num_proc=|preprocess\w* dataset|"
    r"tokeniz(?:e|ing) (?:the )?(?:dataset|data|texts?|corpus)|loading (?:the )?(?:whole |full )?dataset (?:in)?to (?:memory|RAM)"
)
_WORK = expression(
    r"(?i)\bloss\b|iteration\s+\d+|\bit/s\b.*loss|starting training|\*{3,} running training"
)
_KEPT = expression(
    r"(?i)eval_accumulation_steps|compute_metrics|preprocess_logits|all_(?:preds|logits|predictions|outputs)|gather_for_metrics|"
    r"output_hidden_states|vocab_size"
)
_OFFLOAD = expression(
    r"(?i)offload_(?:optimizer|param\w*)|cpu[_ ]offload|offload\w*['\"]?\s*[:=].{0,30}cpu|DeepSpeedCPUAdam"
)
_NO_OFFLOAD = expression(r"(?i)cpu[_ ]offload\w*['\"]?\s*[:=]\s*false")
_USED = expression(
    r"CPU Virtual Memory:\s+used = (?P<gb>\d+(?:\.\d+)?) GB, percent = (?P<share>\d+(?:\.\d+)?)%"
    r"|(?i:\b(?:host|cpu|system|node|pod|container)[ _]?(?:mem(?:ory)?|ram)|\bram\b|\brss\b)(?i:[ _]?(?:used|usage|in use))?[ :=]{1,3}"
    r"(?:(?P<percent>\d{1,3}(?:\.\d+)?) ?%|(?P<used>\d+(?:\.\d+)?) ?G(?:i?B)?\b(?: ?(?:/|of) ?(?P<total>\d+(?:\.\d+)?) ?G)?)"
)
_FREE = expression(
    r"^\s*Mem:\s+(?P<total>\d+(?:\.\d+)?[KMGT]?i?B?)\s+(?P<used>\d+(?:\.\d+)?[KMGT]?i?B?)\s+(?P<free>\d+(?:\.\d+)?[KMGT]?i?B?)\b"
)
_KILLS = expression(r"^\s*oom_kill[ :=]+(?P<count>\d{1,9})\s*$")
_MAX = expression(r"memory\.(?:max|limit_in_bytes)\s*$")
_PARAMETERS = expression(
    r"(?i)(?P<n>\d+(?:\.\d+)?) ?(?P<unit>[BM])\w* (?:trainable )?param|(?:trainable|total|number of) (?:params|parameters)\s*[:=]?\s*(?P<exact>\d[\d,]{6,20})"
)


@dataclass(frozen=True, slots=True)
class Reading:
    """One printed figure of host memory: GB in use, share of the whole in percent, where known."""

    gb: float | None
    share: float | None
    place: tuple[int, str]

    @property
    def size(self) -> float:
        return self.gb if self.gb is not None else self.share or 0.0

    def say(self) -> str:
        if self.gb is None:
            return f"{self.share:g}%"
        return f"{self.gb:.0f} GB" + (f" ({self.share:g}%)" if self.share is not None else "")


@dataclass(frozen=True, slots=True)
class Trend:
    """How host memory moved until the kill."""

    first: Reading
    last: Reading

    @property
    def whole(self) -> float | None:
        """GB of the host, from the last figure that has both."""
        if self.last.gb is None or not self.last.share:
            return None
        return self.last.gb / self.last.share * 100

    def say(self) -> str:
        of = f" of about {self.whole:.0f} GB" if self.whole is not None else ""
        return f"host memory (RAM) had climbed from {self.first.say()} to {self.last.say()}{of}"


def explain_kill(incident: LogIncident, finding: Finding) -> Finding:
    """A kill without a sender, explained by work that fills host memory; unchanged where none is seen."""
    place = finding.evidence[0] if finding.evidence else None
    digest = next((d for d in incident.digests if place and d.file == place.file), None)
    if place is None or digest is None:
        return finding
    at = digest.position(place.line)
    near = list(digest.kept[max(0, at - SPAN) : at])
    trend = _read_trend(near)
    work = last_work(near)
    who = finding.subject
    limited = _name_limit(digest, finding, who)
    if limited is not None:
        return limited
    full = _read_full(digest, near)
    if work is None:
        return _tell_full(finding, who, full, digest.file) if full is not None else finding
    phase, line = work
    if phase == "loading":
        words = (
            "while it loaded the model, before any step, and no CUDA error was raised: every process loads a full copy "
            "into host memory (RAM), which probably ran out"
        )
        quoted = [line]
        if full is not None and trend is None:
            words, quoted = f"{words}; {full[0]}", [line, full[1]]
    else:
        told = _explain_work(phase, near, trend)
        if told is None:
            return _tell_full(finding, who, full, digest.file) if full is not None else finding
        words, quoted = told[0], [line, *told[1]]
    if trend is not None:
        words += f"; {trend.say()}"
        quoted += [trend.first.place, trend.last.place]
        words += _say_need(near, trend) if phase == "optimizer" else ""
    return replace(
        finding,
        title=f"{who} was killed by SIGKILL (-9) {words}; the kernel log of the host decides",
        level=Level.FAILURE,
        category=Category.OOM,
        confidence=Confidence.LIKELY,
        evidence=(
            *finding.evidence[:2],
            *(quote_line(digest.file, n, t) for n, t in dict.fromkeys(quoted)),
        )[:7],
        page=PAGE,
        facts={**finding.facts, **({Fact.FIX: _FIXES[phase]} if phase in _FIXES else {})},
    )


def _name_limit(digest: FileDigest, finding: Finding, who: str) -> Finding | None:
    """The pasted counters of the cgroup say that the kernel killed at its limit."""
    rows = [r for r in digest.kept[-4000:] if len(r[1]) < 120]
    killed = next((r for r in rows if (m := _KILLS.match(r[1])) and int(m["count"])), None)
    if killed is None:
        return None
    limit = next((rows[i + 1] for i, r in enumerate(rows[:-1]) if _MAX.search(r[1])), None)
    size = ""
    if limit is not None and limit[1].strip().isdigit():
        size = f" of {int(limit[1].strip()) / (1 << 30):.0f} GiB"
    return replace(
        finding,
        title=f"{who} was killed (SIGKILL, -9) by the kernel's OOM killer at the memory limit{size} of its cgroup (container, pod "
        "or Slurm job), as memory.events counts: that memory ran out, whatever the host has free",
        level=Level.CAUSE,
        category=Category.OOM,
        confidence=Confidence.LIKELY,
        evidence=(
            *finding.evidence[:2],
            *(
                Evidence(digest.file, n, t.strip())
                for n, t in (killed, *((limit,) if size and limit else ()))
            ),
        ),
        page=PAGE,
    )


def _read_full(
    digest: FileDigest, near: Sequence[tuple[int, str]]
) -> tuple[str, tuple[int, str]] | None:
    """The last figure of host memory before a kill, or `free` beside it, where it was nearly used up."""
    for row in reversed(near):
        if (used := _USED.search(row[1][:600])) is not None:
            share = float(used["share"] or used["percent"] or 0)
            if share >= FULL:
                return f"{share:g}% of the host's memory were in use just before", row
            break
    for row in digest.kept[-FREE_LINES:]:
        if (free := _FREE.match(row[1])) is not None:
            total, taken, left = (_read_size(free[n]) for n in ("total", "used", "free"))
            if total > 0 and taken >= 0.9 * total and left <= 0.05 * total:
                return f"free shows {free['used']} of {free['total']} in use", row
    return None


def _read_size(text: str) -> float:
    """Size that `free` prints, in GiB where a unit is printed; without one only ratios mean anything."""
    unit = text.rstrip("iB")[-1:]
    return float(text.rstrip("KMGTiB")) * {"K": 2**-20, "M": 2**-10, "G": 1.0, "T": 1024.0}.get(
        unit, 1.0
    )


def _tell_full(finding: Finding, who: str, full: tuple[str, tuple[int, str]], file: str) -> Finding:
    """A kill on a host whose memory was seen to be used up."""
    words, (number, text) = full
    return replace(
        finding,
        title=f"{who} was killed by SIGKILL (-9): the memory of the host (RAM) ran out is the reason to look at first, {words}, "
        "and no CUDA error was raised; the kernel log of the host decides",
        level=Level.FAILURE,
        category=Category.OOM,
        confidence=Confidence.LIKELY,
        evidence=(*finding.evidence[:3], quote_line(file, number, text)),
        page=PAGE,
        facts={**finding.facts, Fact.FIX: "Host out of memory"},
    )


def name_killed_work(incident: LogIncident, finding: Finding) -> Finding:
    """What the job was doing when the kernel killed a process of it, added to the title."""
    for digest in incident.digests:
        rows = _until_end(digest)
        work = last_work(rows)
        if work is None:
            continue
        phase, line = work
        words, quoted = PLAIN[phase], [line]
        if phase == "evaluation" and (kept := _last(rows, _KEPT)) is not None:
            words += f" ({name_kept(kept[1]) or _GATHERED})"
            quoted.append(kept)
        return replace(
            finding,
            title=f"{finding.title}; it struck {words}",
            evidence=(
                *finding.evidence[:3],
                *(quote_line(digest.file, n, t) for n, t in dict.fromkeys(quoted)),
            ),
        )
    return finding


_GATHERED = "they are gathered for the metric"
PLAIN = {
    "loading": "while the model was loaded: every process loads a full copy into host memory",
    "optimizer": "while the optimizer states were created",
    "evaluation": "during evaluation, which keeps the outputs (predictions, logits) of all batches in host memory until its end",
    "saving": "while a checkpoint was saved: the full state is gathered in host memory",
    "preparing": "while the dataset was preprocessed: each worker process holds its own part in host memory",
}
_FIXES = {
    "loading": "Model loaded by every process",
    "optimizer": "Optimizer states in host memory",
    "evaluation": "Outputs kept by the evaluation",
    "saving": "Full state gathered",
}
"""How the fix of the page begins that is of the work; preparing has none of its own."""
_ENDING = ("Killing subprocess", "Sending process", "closing signal", "exits with return code", "failed (exitcode", "oom-kill", "SIGKILL", "Killed")  # fmt: skip


def _until_end(digest: FileDigest) -> list[tuple[int, str]]:
    """Lines before the first that tells of an end, the last SPAN of them."""
    rows = list(digest.kept[-2 * SPAN :])
    for index, (_, text) in enumerate(rows):
        if any(word in text for word in _ENDING):
            return rows[max(0, index - SPAN) : index]
    return rows[-SPAN:]


def last_work(rows: Sequence[tuple[int, str]]) -> tuple[str, tuple[int, str]] | None:
    """The kind of work told last, with its line, unless training had begun after it."""
    kinds = (
        ("loading", _LOADING),
        ("optimizer", _OPTIMIZER),
        ("evaluation", _EVALUATION),
        ("saving", _SAVING),
        ("preparing", _PREPARING),
    )
    for row in reversed(rows[-BEFORE_KILL:]):
        text = row[1][:600]
        if text.lstrip().startswith(("File ", "return ", "$ ", "# ")):
            continue
        for name, pattern in kinds:
            if pattern.search(text):
                return name, row
        if _WORK.search(text) and not _KEPT.search(text):
            return None
    return None


def _last(rows: Sequence[tuple[int, str]], pattern: object) -> tuple[int, str] | None:
    return next((r for r in reversed(rows) if pattern.search(r[1][:2000])), None)  # type: ignore[attr-defined]


def name_kept(text: str) -> str:
    """What a line says of the outputs that an evaluation keeps; empty where nothing."""
    words = []
    if "eval_accumulation_steps" in text:
        words.append(
            "eval_accumulation_steps moves the logits from the GPU to the CPU of every process"
        )
    if "compute_metrics" in text:
        words.append("compute_metrics needs the predictions of the whole set at once")
    return "; ".join(words)


def _explain_work(
    phase: str, rows: Sequence[tuple[int, str]], trend: Trend | None
) -> tuple[str, list[tuple[int, str]]] | None:
    """Words and further lines; None where nothing but the phase speaks for host memory."""
    if phase == "optimizer":
        offload = next(
            (r for r in rows if _OFFLOAD.search(r[1]) and not _NO_OFFLOAD.search(r[1])), None
        )
        if offload is None and trend is None:
            return None
        where = " in host memory (parameters or optimizer offloaded to the CPU)" if offload else ""
        words = f"while the optimizer states were created{where}, before any step, and no CUDA error was raised: the memory of the host probably ran out"
        return words, [offload] if offload is not None else []
    kept = _last(rows, _KEPT) if phase == "evaluation" else None
    if trend is None and kept is None:
        return None
    words = f"{PLAIN[phase]}: host memory probably ran out, no CUDA error was raised"
    if kept is not None:
        words = f"{PLAIN[phase]} ({name_kept(kept[1]) or _GATHERED}), and no CUDA error was raised"
    return words, [kept] if kept is not None else []


def _read_trend(rows: Sequence[tuple[int, str]]) -> Trend | None:
    """First and last figure of host memory where it climbed, or was nearly full at the end."""
    found = []
    for row in rows:
        match = _USED.search(row[1][:600])
        if match is None:
            continue
        gb, share = match["gb"] or match["used"], match["share"] or match["percent"]
        total = float(match["total"]) if match["total"] else None
        used = float(gb) if gb else None
        part = float(share) if share else (round(100 * used / total, 1) if used and total else None)
        found.append(Reading(used, part, row))
    if len(found) < 2 or (found[0].gb is None) != (found[-1].gb is None):
        return None
    first, last = found[0], found[-1]
    climbed = last.size >= CLIMBED * max(first.size, 0.1)
    if (last.share is None or last.share < 50) and not (climbed and len(found) >= 4):
        return None
    return Trend(first, last) if climbed or (last.share or 0) >= NEARLY_FULL else None


def _say_need(rows: Sequence[tuple[int, str]], trend: Trend) -> str:
    """What Adam's states of all parameters take, against what was left of the host."""
    if trend.whole is None or trend.last.gb is None:
        return ""
    for _, text in rows:
        found = _PARAMETERS.search(text[:600])
        if found is None:
            continue
        if found["exact"]:
            count = float(found["exact"].replace(",", ""))
        else:
            count = float(found["n"]) * (1e9 if found["unit"].upper() == "B" else 1e6)
        need = count * ADAM_BYTES / 1e9
        if need > trend.whole - trend.last.gb:
            return f"; Adam's two fp32 states of {count / 1e9:.1f}B parameters take another {need:.0f} GB, and {trend.whole - trend.last.gb:.0f} GB were left"
    return ""
