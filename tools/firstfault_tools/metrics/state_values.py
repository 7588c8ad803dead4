"""Which state of the model is not finite, by a check of its state dict pasted into the log?

Running statistics of batch norm take part in evaluation only: once NaN, training looks fine and every
evaluation is garbage. A skipped optimizer step does not undo them.
"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked, quote_line

MARKERS = ("running_mean", "running_var", "num_batches_tracked")
_NAMED = expression(
    r"(?P<name>[\w.]{0,120}running_(?:mean|var))\b['\"]?\s*[,:=]?\s*(?P<rest>.{0,60})"
)
_STATE = expression(r"\b[A-Za-z_][\w.]{0,120}\.running_(?:mean|var)\b")
_BAD = expression(r"(?i)\bnan\b|\binf\b|non-?finite|not finite|\bis_?finite\W{1,3}false|corrupt")
_CHECK = expression(r"(?i)isfinite|isnan|isinf|nan_to_num|non-?finite|not finite|\bnan\b")
_COUNT = expression(r"^\s*(\d{1,9})\b")
_OVERFLOW = expression(r"(?i)(?:inf|nan|overflow)\b.{0,60}(?:gradient|skipp|loss scale|scale)|(?:gradscaler|loss scaler?)\b.{0,60}(?:inf|nan|overflow|skip)")  # fmt: skip
NEAR = 6


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """Running statistics that a pasted check calls not finite, with the overflow before."""
    marked = keep_marked(lines, MARKERS)
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
                confidence=Confidence.LIKELY,
                evidence=tuple(quote_line(file, n, t) for n, t in [(number, text), *before[-1:]]),
                page="loss-nan",
                facts={"names": names[:32], "survived": False, "starts_at": 1},
            ),
        )
    return ()
