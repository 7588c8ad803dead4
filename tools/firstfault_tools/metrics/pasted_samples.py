"""What is wrong with samples that were printed from the input pipeline? Token ids, labels, random numbers.

People print the first ids of a sample or what each loader worker draws. A begin token that stands twice,
labels that are all ignored and workers that all draw the same numbers make no error and a worse model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked

MARKERS = ("input_ids", "labels", "orker")
MOST, MOST_CHARS, WINDOW = 2_000, 2_000, 64
LEAST_WORKERS, LEAST_IGNORED = 3, 4
_LIST = expression(r"(?:\[|tensor\(\[{1,2})\s*(-?\d+(?:,? +-?\d+|,-?\d+){2,})")
_TWICE = expression(r"\[{1,2}\s*(\d{1,7}), ?\1(?:, ?\d+)+")
_BOS = expression(
    r"(?i)\bbos_token(?:_id)?\b[^\n]{0,40}?\b(\d{1,7})\b|\bbos(?: id)?\W{1,4}(\d{1,7})\b"
)
_WORKER = expression(
    r"(?i)\b(?:data)?(?:loader )?worker[ _#:=]{0,2}(?:id[ =:])?(?P<id>\d{1,4})\b(?P<rest>.{4,400})"
)
_DRAWN = expression(
    r"(?i)rand|crop|flip|aug|seed|rotat|scale|angle|jitter|noise|shuffle|mask|draw|\["
)
_SEEDED = expression(r"(?i)np\.random|numpy|augment|rand|seed")


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The first thing that printed samples show."""
    marked = keep_marked(lines, MARKERS)
    if not marked or len(marked) > MOST:
        return ()
    found = _same_draws(marked, lines, file) or _ids(marked, lines, file)
    return (found,) if found is not None else ()


def _make(
    kind: str, title: str, page: str, quoted: Sequence[tuple[int, str]], file: str
) -> Finding:
    return Finding(
        kind=f"samples.{kind}",
        title=title,
        level=Level.CAUSE,
        category=Category.DATA,
        confidence=Confidence.LIKELY,
        evidence=tuple(Evidence(file, n, t.strip()[:400]) for n, t in dict.fromkeys(quoted)),
        page=page,
        facts={"survived": False, "starts_at": 1, "severity": "warning"},
    )


def _same_draws(
    marked: Sequence[tuple[int, str]], lines: Sequence[tuple[int, str]], file: str
) -> Finding | None:
    """Three or more workers that print the very same list of random numbers."""
    drawn: dict[str, dict[str, tuple[int, str]]] = defaultdict(dict)
    for number, text in marked:
        told = _WORKER.search(text[:MOST_CHARS])
        values = _LIST.search(told["rest"]) if told is not None else None
        if told is None or values is None or not _DRAWN.search(told["rest"][: values.start() + 1]):
            continue
        drawn[" ".join(told["rest"].split())].setdefault(told["id"], (number, text))
    same = [by for by in drawn.values() if len(by) >= LEAST_WORKERS]
    if not same or not any(_SEEDED.search(t[:MOST_CHARS]) for _, t in lines[:MOST]):
        return None
    others = {worker for by in drawn.values() for worker in by}
    if len(same[0]) < len(others):
        return None
    quoted = list(same[0].values())
    return _make(
        "same_draws",
        f"all {len(same[0])} loader workers draw the same random numbers (identical lists for workers {', '.join(list(same[0])[:4])}): each forked "
        "worker has a copy of NumPy's (or Python's) random state, so their augmentations are the same; seed by worker in worker_init_fn, or use "
        "torch's generator",
        "skipped-samples",
        quoted[:3],
        file,
    )


def _ids(
    marked: Sequence[tuple[int, str]], lines: Sequence[tuple[int, str]], file: str
) -> Finding | None:
    """Ids of one sample: the begin token twice, or labels that are all ignored."""
    texts = dict(lines)
    bos: set[str] = set()
    for _, text in lines[:MOST]:
        if "bos" in text or "BOS" in text:
            for number in (1, 2):
                near = (
                    texts.get(_ + number, "") if text.lstrip().startswith((">>>", "In [")) else ""
                )
                first = near.strip(" ()[]").partition(",")[0]
                bos |= {first} if first.isdecimal() else set()
            told = _BOS.search(text[:MOST_CHARS])
            bos |= {next(g for g in told.groups() if g)} if told is not None else set()
    for number, text in marked:
        if "input_ids" not in text:
            continue
        for n, t in ((number, text), (number + 1, texts.get(number + 1, ""))):
            twice = _TWICE.search(t[:MOST_CHARS])
            if twice is not None and twice[1] in bos:
                return _make(
                    "begin_token_twice",
                    f"every sample begins with the begin (BOS) token twice (id {twice[1]}): the chat template writes it and the tokenizer adds it "
                    "again (add_special_tokens), so training sees a prompt that the model was never trained with; tokenise with "
                    "add_special_tokens=False, or take it out of the template",
                    "tokenizer-mismatch",
                    [(n, t), (number, text)],
                    file,
                )
    return None
