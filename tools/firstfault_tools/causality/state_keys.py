"""Do the keys of a checkpoint and of a model differ by a prefix only? Reads the lists of a failed load.

`load_state_dict` prints which keys are missing and which were not expected. Where one list is the other
with a wrapper's prefix before it, nothing is missing: the file was saved with or without that wrapper.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Json
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked

LEAST_SHAPES = 3
_SHAPE = expression(
    r"size mismatch for [\w.]+: copying a param with shape torch\.Size\(\[([\d, ]+)\]\) from checkpoint, the shape in "
    r"current model is torch\.Size\(\[([\d, ]+)\]\)"
)
NEAR = 40
MOST_KEYS = 400
_LIST = expression(r"(Missing|Unexpected) key\(s\) in state_dict: (.{3,40000})")
_KEY = expression(r"[\"']([\w.]{3,300})[\"']")
_WRAPPERS = {
    "module.": "DataParallel, DDP or a DeepSpeed engine",
    "_orig_mod.": "torch.compile",
    "_fsdp_wrapped_module.": "FSDP",
    "_checkpoint_wrapped_module.": "activation checkpointing",
    "_forward_module.": "Lightning's strategy",
    "base_model.model.": "PEFT",
    "model.": "a trainer or a LightningModule",
}


GATE = (
    "_IncompatibleKeys",
    "nexpected_keys",
    "nexpected keys",
    "nexpected key(s)",
    "nexpected Keys",
    "unexpected",
    "strict=False",
    "strict = False",
    "strict: False",
)
LAX = GATE[-3:]
_SIDE = expression(
    r"(?i)\b(?:(?P<file>weights?|checkpoint|ckpt|pre-?trained|file|state_?dict|saved|loaded|backbone file)|(?P<model>model|module|network|net))\b"
)
_MAPPED = expression(
    r"(?i)\b(?:stripp?|renam|remapp?|convert|replac|add|remov)\w*\b.{0,30}\b(?:prefix|keys?|names?)\b"
)
LEAST_KEYS = 8
"""Equal numbers of missing and unexpected keys from which on it is the same weights under other names."""
_BOTH = expression(
    r"(?i)\bmissing[_ ]keys?['\"]?\s*[:=]\s*(?P<missing>\[[^\]]{0,40000}\]|\d+).{0,40}?\bunexpected[_ ]keys?['\"]?\s*[:=]\s*(?P<extra>\[[^\]]{0,40000}\]|\d+)"
)
_ONE = expression(
    r"(?i)\b(?P<which>missing|unexpected)[_ ]keys?['\"]?\s{0,9}(?:\(\d{1,9}\)\s{0,9})?[:=]\s{0,9}(?P<keys>\[[^\]]{0,40000}\]|\d+)"
)


_COUNTED = expression(
    r"(?i)\bmissing\b\D{0,24}(?P<missing>\d{1,7})\W{1,3}(?:\w{1,12}\W{1,3}){0,3}?(?P<lacks>\w{2,}(?:\.\w+)+)"
    r".{0,40}?\bunexpected\b\D{0,24}(?P<extra>\d{1,7})\W{1,3}(?:\w{1,12}\W{1,3}){0,3}?(?P<given>\w{2,}(?:\.\w+)+)"
)
"""Counts of a program's own, each with the name of one key."""


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """A load with strict=False that printed what it left out: the same weights under other names."""
    marked = [(n, t) for n, t in keep_marked(lines, GATE) if "Error" not in t]
    if not marked:
        return ()
    if (printed := _compare_printed(lines, marked, file)) is not None:
        return (printed,)
    for number, text in marked[:200]:
        both = _BOTH.search(text[:80_000])
        told = _COUNTED.search(text[:2_000]) if both is None else None
        if both is not None:
            found = _describe_left_out(both["missing"], both["extra"], [(number, text)], file)
        elif told is not None and told["missing"] == told["extra"]:
            lacks, given = repr([told["lacks"]]), repr([told["given"]])
            found = _describe_left_out(lacks, given, [(number, text)], file)
        else:
            extra = _ONE.search(text[:80_000])
            near = [(n, t) for n, t in lines if 0 < abs(n - number) <= 2 and "issing" in t]
            other = next(
                ((p, m) for p in near if (m := _ONE.search(p[1][:80_000])) and m["which"].lower() == "missing"),
                None,
            )  # fmt: skip
            if extra is None or other is None or extra["which"].lower() != "unexpected":
                continue
            quoted = [(number, text), other[0]]
            found = _describe_left_out(other[1]["keys"], extra["keys"], quoted, file)
        if found is not None:
            return (found,)
    return ()


def _compare_printed(
    lines: Sequence[tuple[int, str]], marked: Sequence[tuple[int, str]], file: str
) -> Finding | None:
    """Names that the program itself printed of the file and of the model before a load that need not fit."""
    lax = next((row for row in marked if any(word in row[1] for word in LAX)), None)
    if lax is None:
        return None
    sides: dict[str, tuple[list[str], tuple[int, str]]] = {}
    for number, text in lines:
        if abs(number - lax[0]) > NEAR or len(text) > 20_000 or "key" not in text:
            continue
        if _MAPPED.search(text):
            return None
        keys = [k for k in _KEY.findall(text) if "." in k][:MOST_KEYS]
        side = _SIDE.search(text.partition("key")[0]) if keys else None
        if side is not None:
            sides.setdefault(side.lastgroup or "", (keys, (number, text)))
    if len(sides) < 2:
        return None
    (own, ours), (given, theirs) = sides["model"], sides["file"]
    quoted = [lax, ours, theirs]
    return _describe_left_out(repr(own), repr(given), quoted, file)


def _describe_left_out(
    missing: str, extra: str, quoted: Sequence[tuple[int, str]], file: str
) -> Finding | None:
    told = ""
    facts: dict[str, Json] = {"survived": False, "starts_at": 1, "explains": {"unlearned": 0.4}}
    if missing.startswith("[") and extra.startswith("["):
        left, given = _KEY.findall(missing)[:MOST_KEYS], _KEY.findall(extra)[:MOST_KEYS]
        if not left or not given:
            return None
        prefix, side = _common_prefix(left, given)
        if prefix:
            facts[f"{side}_prefix"] = prefix
            told = f"the names differ by the prefix '{prefix}' only, which the {side} has ({(left if side == 'model' else given)[0]})"
        elif len(left) == len(given) >= LEAST_KEYS:
            told = f"{len(left)} keys are missing and as many unexpected ({left[0]} and {given[0]}): the same weights under other names"
    elif missing.isdecimal() and missing == extra and int(missing) >= LEAST_KEYS:
        told = (
            f"{missing} keys are missing and as many unexpected: the same weights under other names"
        )
    if not told:
        return None
    return Finding(
        kind="checkpoint.names_differ",
        title=f"The weights of the file were not loaded: {told}; strict=False ignores that without an error, so the model keeps its random initial weights",
        level=Level.CAUSE,
        category=Category.CHECKPOINT,
        confidence=Confidence.CONFIRMED,
        evidence=tuple(Evidence(file, n, t.strip()[:600]) for n, t in quoted),
        facts=facts,
    )


def name_prefixes(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, with the prefix named on a mismatch of keys that is only one."""
    out = []
    for finding in findings:
        if finding.has(FindingRole.KEYS_MISMATCH) and finding.evidence:
            found = _explain(incident, finding)
            if found is not None:
                facts = {**finding.facts, **found[1]}
                finding = replace(finding, title=finding.reworded(f": {found[0]}"), facts=facts)
        elif finding.has(FindingRole.SHAPES_MISMATCH) and finding.evidence:
            told = _explain_shapes(incident, finding)
            if told is not None:
                finding = replace(finding, title=finding.reworded(f": {told}"))
        out.append(finding)
    return out


def _explain_shapes(incident: LogIncident, finding: Finding) -> str | None:
    """All shapes differ by one whole factor: one side is split over that many ranks, the other is not."""
    place = finding.evidence[0]
    digest = next((d for d in incident.digests if d.file == place.file), None)
    if digest is None:
        return None
    at = digest.position(place.line)
    factors: list[tuple[int, str, str, bool]] = []
    for _, text in digest.kept[at : at + NEAR]:
        for saved, model in _SHAPE.findall(text[:4_000]):
            a, b = ([int(x) for x in side.split(",")] for side in (saved, model))
            odd = [(x, y) for x, y in zip(a, b, strict=False) if x != y]
            if len(a) != len(b) or len(odd) != 1 or min(odd[0]) == 0 or max(odd[0]) % min(odd[0]):
                return None
            factors.append((max(odd[0]) // min(odd[0]), saved, model, odd[0][0] > odd[0][1]))
    if (
        len(factors) < LEAST_SHAPES
        or len({(f[0], f[3]) for f in factors}) != 1
        or factors[0][0] < 2
    ):
        return None
    factor, saved, model, whole = factors[0]
    split, full = ("the model", "the checkpoint") if whole else ("the checkpoint", "the model")
    return (
        f"the checkpoint has [{saved}], the model [{model}], and every shape differs by the same factor {factor}: {split} "
        f"is split over {factor} ranks (tensor parallel, sharded initialisation) and {full} is not, or they are split "
        "differently; load before splitting, or convert the checkpoint to the parallel sizes of this run"
    )


def _explain(incident: LogIncident, finding: Finding) -> tuple[str, dict[str, str]] | None:
    place = finding.evidence[0]
    digest = next((d for d in incident.digests if d.file == place.file), None)
    if digest is None:
        return None
    lists: dict[str, list[str]] = {}
    at = digest.position(place.line)
    for _, text in digest.kept[max(0, at - NEAR) : at + NEAR]:
        for kind, keys in _LIST.findall(text[:60_000]):
            lists.setdefault(kind, _KEY.findall(keys)[:MOST_KEYS])
    missing, extra = lists.get("Missing", []), lists.get("Unexpected", [])
    if not missing or not extra:
        return None
    prefix, side = _common_prefix(missing, extra)
    if not prefix:
        return None
    who = _WRAPPERS.get(prefix)
    wrapper = f", the prefix that {who} puts before every key" if who else ""
    facts = {f"{side}_prefix": prefix}
    if side == "model":
        told = (
            f"they differ by the prefix '{prefix}' only{wrapper}: the model has it ({missing[0]}), the file does not "
            f"({extra[0]})"
        )
        return told, facts
    told = (
        f"they differ by the prefix '{prefix}' only{wrapper}: the file has it ({extra[0]}), the model does not "
        f"({missing[0]})"
    )
    return told, facts


def _common_prefix(missing: Sequence[str], extra: Sequence[str]) -> tuple[str, str]:
    """(prefix, side that carries it), or two empty strings."""
    for long, short, side in ((missing, extra, "model"), (extra, missing, "file")):
        match = re.match(r"(?:\w{1,80}\.){1,3}", long[0])
        parts = match[0].split(".")[:-1] if match is not None else []
        for count in range(1, len(parts) + 1):
            prefix = ".".join(parts[:count]) + "."
            if _makes_alike(prefix, long, short):
                return prefix, side
    return "", ""


def _makes_alike(prefix: str, long: Sequence[str], short: Sequence[str]) -> bool:
    """Without the prefix, which the short side lacks, the keys of both are the same; of a known wrapper some are enough."""
    if any(key.startswith(prefix) for key in short):
        return False
    bare = {k.removeprefix(prefix) for k in long if k.startswith(prefix)}
    alike = sum(1 for key in short if key in bare)
    if alike >= max(1, min(len(short), len(long)) // 2):
        return True
    if prefix not in _WRAPPERS or not all(k.startswith(prefix) for k in long):
        return False
    if alike:
        return True
    return prefix != "model." and not {_stem(k) for k in bare}.isdisjoint(map(_stem, short))


def _stem(key: str) -> str:
    return ".".join(key.split(".")[-2:])
