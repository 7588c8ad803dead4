"""What do checks of samples and of the model's state show that were pasted into the log?

People print the first ids of a sample, what each loader worker draws, or which state is finite. A begin
token that stands twice and workers that all draw the same numbers make no error and a worse model (samples
that come again are read in `same_data`). Running statistics of batch norm take part in evaluation only: once NaN,
training looks fine and every evaluation is garbage, and a skipped optimizer step does not undo them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked, quote_line

MARKERS = ("input_ids", "orker")
MOST, MOST_CHARS = 2_000, 2_000
LEAST_WORKERS, LEAST_EPOCHS = 3, 3
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
_AUGMENTED = expression(r"(?i)crop|flip|aug|rotat|scale|angle|jitter|shift|bright|noise|mask|erase")
_SEEDED = expression(r"(?i)np\.random|numpy|augment|rand|seed")


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The first thing that a printed state or printed samples show."""
    statistics = _read_statistics(lines, file)
    marked = keep_marked(lines, MARKERS)
    if statistics or len(marked) > MOST:
        return statistics
    found = (
        _garbled_text(lines, file)
        or _same_draws(marked, lines, file)
        or _same_augmentation(lines, file)
        or (_ids(marked, lines, file) if marked else None)
    )
    return (found,) if found is not None else ()


def _make(
    kind: str, title: str, page: str, quoted: Sequence[tuple[int, str]], file: str
) -> Finding:
    return Finding(
        kind=f"samples.{kind}",
        title=title,
        level=Level.CAUSE,
        category=Category.DATA,
        evidence=tuple(quote_line(file, n, t) for n, t in dict.fromkeys(quoted)),
        page=page,
        facts={"survived": False, "starts_at": 1, "severity": "warning"},
    )


_SHOWN = expression(
    r"(?i)\b(?:decoded?|detokeni[sz]ed|prompts?|sample text|input text|example)\b[^\n]{0,40}?[:=]\s*(?P<text>(?:b?['\"]|<).{8,})"
)
_BYTES = ("\ufffd", "\u0120", "\u010a")
"""What no decoded text holds: the replacement character, and the letters of byte-level tokens for a blank and a line's end."""
_WORD_LIKE = expression(r"(?<![\w#<|])[a-z]{3,}(?![\w|>])")
_CACHE = expression(
    r"(?i)\b(?:(?:loading|found|using|reusing|re-?used?)\b.{0,40}\bcache\w*|cache hit)\b.{0,60}?(?P<path>/\S{4,300})"
)
_WRITTEN = expression(
    r"^-\S+\s+\d+\s+(?P<who>\S+)\s.{0,60}?(?P<when>\d{4}-\d\d-\d\d|[A-Z][a-z]{2} +\d{1,2})\s"
)
LEAST_BROKEN = 2


def _garbled_text(lines: Sequence[tuple[int, str]], file: str) -> Finding | None:
    """A decoded sample that is no text, and the cache from which the tokenised data were taken."""
    for number, text in keep_marked(lines, _BYTES)[:MOST]:
        shown = _SHOWN.search(text[:MOST_CHARS])
        if shown is None or sum(shown["text"].count(sign) for sign in _BYTES) < LEAST_BROKEN:
            continue
        pieces = shown["text"].split()
        if 3 * len(_WORD_LIKE.findall(shown["text"])) > 2 * len(pieces):
            continue
        words = (
            "the sample that the program prints of its training data is garbled, no text of any language: what the model is given is not what "
            "the data file holds"
        )
        quoted = [(number, text)]
        cached = [(n, t, m) for n, t in keep_marked(lines, ("cache", "Cache"))[:MOST] if (m := _CACHE.search(t[:MOST_CHARS]))]  # fmt: skip
        if not cached:
            words += " (the ids were made by another tokenizer or vocabulary than the one that decodes them)"
            return _make("garbled", words, "tokenizer-mismatch", quoted, file)
        name = cached[-1][2]["path"].rstrip("'\",.;:)").rpartition("/")[2]
        quoted.append(cached[-1][:2])
        made = next(((n, t, m) for n, t in keep_marked(lines, (name,)) if (m := _WRITTEN.match(t))), None)  # fmt: skip
        told = ""
        if made is not None:
            told = f", written {made[2]['when']} by {made[2]['who']}"
            quoted.append(made[:2])
        words += (
            f"; the tokenised samples were not made anew but taken from a cached file ({name}{told}), a corrupted or stale entry of an earlier "
            "run with other code or another tokenizer"
        )
        if keep_marked(lines, ("reward",)):
            words += ", so every answer to such prompts is worthless and earns a reward of zero"
        return _make("garbled", words, "tokenizer-mismatch", quoted, file)
    return None


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


_OF_EPOCH = expression(
    r"(?i)\bepoch\W{0,3}(?P<epoch>\d{1,5})\b\W{1,3}(?:sample|idx|index|image|item|id)\W{0,3}(?P<sample>\w{1,40})\W{1,3}(?P<rest>\D{0,3}[A-Za-z][^\n]{6,200})"
)
_VALUES = expression(r"-?\d+\.\d{2,}|\d{3,}")


def _same_augmentation(lines: Sequence[tuple[int, str]], file: str) -> Finding | None:
    """Samples that are augmented with the very same numbers in every epoch."""
    drawn: dict[str, dict[str, dict[str, tuple[int, str]]]] = defaultdict(lambda: defaultdict(dict))
    for number, text in keep_marked(lines, ("sample ", "idx ", "image ", "sample=", "idx="))[:MOST]:
        told = _OF_EPOCH.search(text[:MOST_CHARS])
        if told is None or not _AUGMENTED.search(told["rest"]) or not _VALUES.search(told["rest"]):
            continue
        drawn[told["sample"]][" ".join(told["rest"].split())].setdefault(
            told["epoch"], (number, text)
        )
    same = [next(iter(by.values())) for by in drawn.values() if len(by) == 1]
    if len(same) < 2 or len(same) < len(drawn) or min(len(e) for e in same) < LEAST_EPOCHS:
        return None
    quoted = list(same[0].values())
    return _make(
        "same_augmentation",
        f"every sample is augmented with the same random numbers in each epoch ({', '.join(list(same[0])[:5])}): the loader workers start each "
        "epoch from the same seed (fixed in worker_init_fn or by seed_everything with workers=True), so the augmentation adds no new samples and "
        "the run overfits",
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
                    "again (add_special_tokens), so training sees a prompt that the model was never trained with",
                    "tokenizer-mismatch",
                    [(n, t), (number, text)],
                    file,
                )
    return None


_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
_NAMED = expression(
    r"(?P<name>[\w.]{0,120}running_(?:mean|var))\b['\"]?\s*[,:=]?\s*(?P<rest>.{0,60})"
)
_STATE = expression(r"\b[A-Za-z_][\w.]{0,120}\.running_(?:mean|var)\b")
_BAD = expression(r"(?i)\bnan\b|\binf\b|non-?finite|not finite|\bis_?finite\W{1,3}false|corrupt")
_CHECK = expression(r"(?i)isfinite|isnan|isinf|nan_to_num|non-?finite|not finite|\bnan\b")
_COUNT = expression(r"^\s*(\d{1,9})\b")
_OVERFLOW = expression(r"(?i)(?:inf|nan|overflow)\b.{0,60}(?:gradient|skipp|loss scale|scale)|(?:gradscaler|loss scaler?)\b.{0,60}(?:inf|nan|overflow|skip)")  # fmt: skip
NEAR = 6


def _read_statistics(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """Running statistics that a pasted check calls not finite, with the overflow before."""
    marked = keep_marked(lines, _STATISTICS)
    if not marked:
        return ()
    texts = dict(lines)
    for number, text in marked[:2000]:
        named = _NAMED.search(text[:2000])
        if named is None or "Missing key" in text or "size mismatch" in text:
            continue
        said = _BAD.search(text) is not None
        count = _COUNT.match(named["rest"])
        checked = (
            count is not None
            and int(count[1]) > 0
            and any(_CHECK.search(texts.get(n, "")[:500]) for n in range(number - NEAR, number + 1))
        )
        if not (said or checked):
            continue
        names = list(dict.fromkeys(_STATE.findall(text[:2000])))
        before = [(n, t) for n, t in keep_marked(lines, ("caler", "overflow", "OVERFLOW")) if n < number and _OVERFLOW.search(t)]  # fmt: skip
        since = " after an overflow of half precision: the skipped optimizer step does not undo the statistics of that forward pass" if before else ""  # fmt: skip
        shown = f" ({', '.join(names[:4])})" if names else ""
        return (
            Finding(
                kind="metrics.running_statistics",
                title=f"NaN or inf in the running mean and variance of BatchNorm{shown}{since}; training uses the statistics of each batch and "
                "looks fine, evaluation uses the poisoned running statistics",
                level=Level.CAUSE,
                category=Category.NUMERICAL,
                evidence=tuple(quote_line(file, n, t) for n, t in [(number, text), *before[-1:]]),
                facts={"names": names[:32], "survived": False, "starts_at": 1},
            ),
        )
    return ()
