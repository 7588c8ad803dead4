"""Is it what the question suspects: a part of the system, a rank, a host, a GPU? Yes or no, with what this log holds for and against it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from firstfault.conversation.checked import lies_elsewhere
from firstfault.conversation.evidence import Line
from firstfault.conversation.facts import Facts
from firstfault.conversation.growth import say_flat, say_growth
from firstfault.conversation.named_events import (
    TROUBLE,
    answer_named,
    progress_after,
    relate,
    say_relation,
)
from firstfault.conversation.places import say_straggler
from firstfault.conversation.rank_lines import NAMED_RANK
from firstfault.conversation.run_answers import clock
from firstfault.conversation.soundness import tell_no_bad_part
from firstfault.conversation.telling import start_sentence
from firstfault.conversation.topics import Topic, topics_in
from firstfault.investigation.diagnosis import Diagnosis
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Verdict

_HARDWARE = expression(
    r"(?i)\bxid\b|\becc\b|uncorrect|corrected error|fallen off|machine check|\bAER\b|\blink down\b|row remap|nvlink error"
)
_PARTS = expression(
    r"(?i)cables?|optics?|transceivers?|switch(?:es)?|nics?|hcas?|drivers?|disks?|nfs|lustre|learning rate|kubernetes|slurm|"
    r"thermal|heat|overheating|psu|power supply|nvlink|pcie|ecc|xid|s3|quota|tokenizer"
)
"""Suspects that are one part: the kind of cause alone does not prove them."""
_NETWORK_PART = expression(
    r"(?i)\bnetwork|\bnic\b|\bhca\b|mlx\d|infiniband|\bib\b|\broce\b|\bcable|optic|transceiver|\befa\b|(?<!pcie )(?<!nvlink )\blink\b"
)
"""A fault of hardware is one of the network only where the cause names a part of it."""
_BLAMES = expression(
    r"(?i)\b(?:blame|guilty|culprit|broken|bad|faulty|defective|dead|at fault|first)\b"
)
_SYMPTOM = expression(r"(?i)\b(?:symptom|consequence)\b")
_COMPLETION = expression(r"\bstatus=(?:[1-9]|\w*ERR)")
_SETTING = expression(r"\b\w+=\S+")
_WHY = expression(
    r"(?i)^\W*(?:and |but |so )?(?:why|how come)\b(?! (?:isn.?t|not|wasn.?t|is it not))"
)
_SUFFERS = expression(r"(?i)\bpeer\b|\bremote\b|closed by|timed? ?out|watchdog|connection")
_GPU_MEMORY = expression(r"(?i)\bgpu (?:mem|oom)|\bvram\b|\bcuda (?:oom|out of memory)|\bgpu\b[^?\n]{0,20}\b(?:gb|gib|free)\b")  # fmt: skip
_HOST_MEMORY = expression(r"(?i)\bhost memory|\bRAM\b|\bcgroup\b|\bkernel.s OOM killer")
_GPU_COLUMN = expression(r"(?i)\b(?:gpu|cuda|hbm|vram)\b")
_LIKE_HOST = expression(
    r"(?i)^(?!step|iter|rank|gpu\d|mlx|ens|eth|ib\d|cuda|bf16|fp\d|h\d00|a\d00|fsdp|zero|xid|global|checkpoint|ckpt|nccl)"
    r"[a-z][a-z-]*-?\d{1,5}[\w-]*$"
)


def tell_suspect(f: Facts) -> str:
    """The verdict on what the question names; '' where it names nothing that can be judged."""
    d = f.diagnosis
    if _WHY.search(f.text):
        return ""
    blamed = _BLAMES.search(f.text) is not None and d.verdict is Verdict.FAULT
    if not blamed and (named := answer_named(f, f.evidence)):
        return named
    what = f.asked.named.get("what", "")
    topics = topics_in(what) if what else topics_in(f.text)
    if order := tell_order(f):
        return order
    if d.verdict in (Verdict.HEALTHY, Verdict.WARNING):
        return _of_sound_run(f, topics)
    if d.verdict is not Verdict.FAULT or not d.hypotheses:
        return f"That is open: {f.cause}. Nothing in the evidence settles it."
    if other := which_memory(f):
        flat = say_flat(f, _GPU_COLUMN)
        return f"No. {other}{f.cause} {f.main}. {flat} {say_growth(f)}".replace("  ", " ").strip()
    if topics and _SYMPTOM.search(f.text):
        in_cause = any(x.word.search(f.whole_cause) for x in topics)
        return f"{'The cause' if in_cause else 'A symptom, not the cause'}, by this evidence ({d.confidence.value}): {_first_fault(f)}"
    of_hardware = any(x.id == "hardware" for x in topics)
    if place := _of_place(f, of_hardware):
        return place
    accused = next((x for x in topics if is_accused(d, x, f.text, what)), None)
    if accused is not None:
        return f"Yes, that is where the evidence points ({d.confidence.value}): {_first_fault(f)}{_kin(f, topics, accused)}"
    if not topics:
        return answer_named(f, f.evidence) if blamed else ""
    elsewhere = lies_elsewhere(d.hypotheses[0], what or f.text)
    part = None if elsewhere else next((x for x in topics if x.named_in_causes and x.word.search(f.whole_cause)), None)  # fmt: skip
    if part is not None:
        return f"In part: the cause is of another kind and names it ({d.confidence.value}): {f.whole_cause} {f.main}.{_kin(f, topics, part)}"
    head = "Not shown, and not ruled out" if d.confidence is Confidence.POSSIBLE else "No, not by this evidence"  # fmt: skip
    told = "".join(_for_and_against(f, x, what) for x in topics[:2])
    return f"{head} ({d.confidence.value}): {_first_fault(f)}{told}{_kin(f, topics, None)}"


_FIRST = expression(r"(?i)\bfirst\b|\bbefore\b|\bearlier\b|\bwho started\b|\bin which order\b")


def tell_order(f: Facts) -> str:
    """Which of two hosts or ranks that are named failed first; '' where fewer are named or no order is asked for."""
    ranks = [f"rank {n}" for n in dict.fromkeys(NAMED_RANK.findall(f.text))]
    names = ranks if len(ranks) > 1 else named_hosts(f)
    if len(names) < 2 or _FIRST.search(f.text) is None or f.diagnosis.verdict is not Verdict.FAULT:
        return ""
    said = f"{f.place} {f.diagnosis.root_cause}".lower()
    first = next((n for n in names if re.search(rf"(?<![\w-]){re.escape(n.lower())}(?![\w-])", said)), None)  # fmt: skip
    rows = []
    for name in names[:3]:
        told = [x for x in _lines_of(f, name) if TROUBLE.search(x.text)]
        rows.append(f"- {name}: {_told(f, told[0]) if told else 'wrote no line of trouble'}")
    head = f"{start_sentence(first)} first: {_first_fault(f)}" if first is not None else f"Neither is where it began: {_first_fault(f)}"  # fmt: skip
    return f"{head} What each wrote first of trouble:\n\n" + "\n".join(rows)


def _lines_of(f: Facts, name: str) -> list[Line]:
    """Lines that a host or rank wrote."""
    rank = NAMED_RANK.fullmatch(name)
    mine = {int(rank[1])} if rank is not None else {r for r, h in f.rank_hosts.items() if h == name}
    return [x for x in f.evidence.lines if x.place.rank in mine or x.place.host == name or (x.place.host is None and f" {name}:" in f" {x.text}")]  # fmt: skip


def _first_fault(f: Facts) -> str:
    at = f", at {clock(f.record.fault_time)} UTC" if f.record.fault_time is not None else ""
    place = f", at {f.place}" if f.place and f.place not in f.cause else ""
    return f"{f.cause}{place}{at} {f.main}."


def is_accused(diagnosis: Diagnosis, topic: Topic, text: str, what: str = "") -> bool:
    """The verdict lies in the part that the topic names. what: the suspect in the question's own words."""
    hypotheses = diagnosis.hypotheses[:1]
    said = " ".join(
        [diagnosis.root_cause, *(h.root_cause for h in hypotheses), diagnosis.signature or ""]
    )
    word = what or next((m[0] for m in [topic.word.search(text)] if m is not None), "")
    if _PARTS.fullmatch(word):
        return word.lower().rstrip("s") in said.lower()
    if topic.id == "network" and diagnosis.category is Category.HARDWARE:
        return _NETWORK_PART.search(diagnosis.root_cause) is not None
    if diagnosis.category is topic.categories[0]:
        return True
    if diagnosis.category is Category.PERFORMANCE:  # it has no part of its own: the cause names one
        return topic.seen.search(diagnosis.root_cause) is not None
    own = topic.word.search(said) or topic.seen.search(said)
    return diagnosis.category in topic.categories and own is not None


def _for_and_against(f: Facts, topic: Topic, what: str) -> str:
    """What of the evidence looks like the part, by when it came, and what would exclude it."""
    words = [m[0] for m in topic.word.finditer(f.text)]
    name = what or (words[-1] if words else topic.id)
    own = expression(rf"(?i)(?<![a-z]){re.escape(words[-1])}(?![a-z])") if words else topic.seen
    looks = [x for x in f.evidence.lines if (topic.seen.search(x.text) or own.search(x.text)) and _is_trouble(x.text)]  # fmt: skip
    relations = [r for x in looks if not (r := relate(f, f.evidence, x)).is_fault]
    after = [r for r in relations if (r.seconds or 0.0) >= 1 or (r.seconds is None and r.is_before is False)]  # fmt: skip
    before = [r for r in relations if (r.seconds or 0.0) <= -1 or (r.seconds is None and r.is_before)]  # fmt: skip
    out = ""
    if after:
        many = f"The {len(after)} lines that look like it ({name}) come" if len(after) > 1 else f"The line that looks like it ({name}) comes"  # fmt: skip
        out += f" {many} later: {say_relation(f, after[0])}; what follows the fault did not cause it."  # fmt: skip
    if before:
        went = progress_after(f, before[0])
        out += f" Earlier, {say_relation(f, before[0])}{f', and training went on after it ({went})' if went else ''}."
    if relations and not after and not before:
        first = relations[0].line
        out += f" {len(relations)} lines look like it ({name}), first `{first.text.strip()[:140]}` ({f.at(first)}); nothing tells their order against the first fault."  # fmt: skip
    elif not after and not before:
        out += (
            f" None of the {len(f.evidence.lines):,} lines read tells of trouble with the {name}."
        )
    weaker = next((h for h in f.diagnosis.hypotheses[1:] if h.category in topic.categories), None)
    if weaker is not None:
        out += f" Of that kind, only weaker ({weaker.confidence.value}): {weaker.root_cause} {f.sources.marks(weaker.for_[:2], f.diagnosis)}."
    elif topic.check:
        out += f" To exclude it for good: `{topic.check}`."
    return out


def _is_trouble(text: str) -> bool:
    return TROUBLE.search(_SETTING.sub("", text)) is not None or _COMPLETION.search(text) is not None  # fmt: skip


def _kin(f: Facts, topics: Sequence[Topic], accused: Topic | None) -> str:
    """What the log cannot tell apart from the verdict, where a question suspects its neighbour."""
    notes = [
        x.beside[k]
        for x in topics
        if x is not accused
        for k in x.beside
        if re.search(k, f.diagnosis.root_cause, re.IGNORECASE)
    ]
    return f" {notes[0]}" if notes else ""


def _of_sound_run(f: Facts, topics: Sequence[Topic]) -> str:
    """Of a run without a fault: that no line tells of it."""
    if f.diagnosis.verdict is Verdict.HEALTHY and any(x.id == "hardware" for x in topics):
        return tell_no_bad_part(f)
    if (
        f.diagnosis.verdict is Verdict.WARNING
        and topics
        and is_accused(f.diagnosis, topics[0], f.text)
    ):
        return f"Yes, that is where the evidence points: {f.cause} {f.main}."
    told = "".join(_for_and_against(f, x, "") for x in topics[:2])
    return f"No sign of it: {f.cause} {f.main}.{told}" if topics else ""


def which_memory(f: Facts) -> str:
    """That it is the other memory than the one that the question speaks of; '' where it is not."""
    of_host = f.diagnosis.category is Category.OOM and _HOST_MEMORY.search(f.whole_cause)
    return "It is the memory of the host (RAM) that ran out, not that of the GPU: " if of_host and _GPU_MEMORY.search(f.text) else ""  # fmt: skip


def named_hosts(f: Facts) -> list[str]:
    """Hosts of the evidence, by prefix or by name in a line, that the question names."""
    text = f.text.lower()
    known = dict.fromkeys((*f.evidence.hosts, *((f.host,) if f.host else ())))
    found = [
        h for h in known if h and re.search(rf"(?<![\w-]){re.escape(h.lower())}(?![\w-])", text)
    ]
    if not found:
        words = [
            w
            for w in re.findall(r"\b[a-z][\w-]{0,40}\d[\w-]{0,20}", text)
            if not NAMED_RANK.search(w)
        ]
        lines = f.evidence.lines
        found = [
            w for w in words if _LIKE_HOST.match(w) and any(w in x.text.lower() for x in lines)
        ]
    return found


def _of_place(f: Facts, hardware: bool) -> str:
    """Of a host or rank that is named: whether it is where it began, and whether its hardware is at fault; '' where none is."""
    d, hosts = f.diagnosis, named_hosts(f)
    ranks = [int(n) for n in NAMED_RANK.findall(f.text)]
    late = f.straggler
    first = late.rank if late is not None else d.first_failing_rank
    own = f.rank_hosts.get(first) if first is not None else None
    if ranks:
        here, name = ranks[0] == first, f"rank {ranks[0]}"
    elif hosts:
        here, name = hosts[0] in (f.host, own, *f.known_names) or hosts[0] in d.root_cause.lower(), hosts[0]  # fmt: skip
    else:
        return ""
    if here and (not hardware or d.category is Category.HARDWARE):
        return f"Yes, by this evidence it began at {name}: {_first_fault(f)}{say_straggler(f)}"
    if here:
        return f"No, not its hardware: it stopped at {name}, but for this reason: {_first_fault(f)}{_no_hardware(f)}"
    if hardware and d.category is not Category.HARDWARE:
        return f"No, not by this evidence: {_first_fault(f)}{_no_hardware(f)}{_own_trouble(f, name, ranks)}"
    known = first is not None or f.host
    head = "No" if known else "Not shown"
    where = f"the first fault lies at {f.place}" if f.place else "no single rank is where it began"
    return f"{head}, by this evidence it is not {name}: {where}: {f.cause} {f.main}.{_own_trouble(f, name, ranks)}"


def _no_hardware(f: Facts) -> str:
    hard = next((x for x in f.evidence.lines if _HARDWARE.search(x.text)), None)
    if hard is None:
        return f" None of the {len(f.evidence.lines):,} lines read tells of a hardware fault (no Xid, ECC, PCIe or link error)."
    return f" One line speaks of hardware: {say_relation(f, relate(f, f.evidence, hard))}."


def _own_trouble(f: Facts, name: str, ranks: Sequence[int]) -> str:
    """What the named rank or host wrote itself, and whether it is a consequence."""
    own = _lines_of(f, name)
    trouble = [x for x in own if TROUBLE.search(x.text)]
    hard = [x for x in trouble if _HARDWARE.search(x.text)]
    if not trouble:
        peers = any(name in x.text for x in f.evidence.lines)
        return f" {start_sentence(name)} itself wrote no line of trouble{'; others name it' if peers else ''}."
    if hard and not ranks:
        return f" Of its own hardware {name} wrote: {_told(f, hard[0])}; test it before you trust it."  # fmt: skip
    word = "a consequence" if _SUFFERS.search(trouble[0].text) else "what it wrote itself"
    return f" The first trouble of {name} is {word}: {_told(f, trouble[0])}."


def _told(f: Facts, line: Line) -> str:
    relation = relate(f, f.evidence, line)
    told = f.at(line) if relation.seconds is None and relation.is_before is None else say_relation(f, relation)  # fmt: skip
    return f"{told}, `{line.text.strip()[:160]}`"
