"""What does the log show of the very quantity that is complained of? Its trend, in numbers.

"The loss jumps up and down" is answered by where the loss goes, "is there a leak?" by whether memory
still grows, "is it stuck?" by whether the bar moved. A quantity that is fine makes the answer calm, one
that is not makes it a finding; one that was not seen makes neither.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise

from firstfault.investigation.curves import Curve, read_curve
from firstfault.investigation.examination import Examination, sample_lines
from firstfault.investigation.speed import find_speed
from firstfault.investigation.spikes import find_spikes
from firstfault_tools.averages import median
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.log.prefix import read_prefix

CHANGED, SETTLED, STILL = 0.07, 0.02, 0.03
"""Share by which a trend must move; within which a level holds; and which is no movement at all."""

_ASKED = {
    "validation loss": r"(?i)\b(?:val|valid|validation|eval|test)\w*[ _]loss",
    "loss": r"(?i)\bloss(?:es)?\b",
    "memory": r"(?i)\bmemory\b|\bRAM\b|\brss\b|\bleak",
    "entropy": r"(?i)\bentropy\b|same answers?\b|answers .{0,20}\b(?:same|alike|identical)|diversity",
    "gradient norm": r"(?i)\bgrad\w*[ _]?norm",
}
_WORRY = expression(
    r"(?i)fluctuat|oscillat|up and down|nois[ye]|unstable|zig-?zag|jump|not (?:learning|converg\w*|decreas\w*|going down)|"
    r"(?:does|do|did)(?: not|n't) (?:learn|converge|decrease|go down|fall|improve)|"
    r"normal|wrong|weird|strange|go(?:es)? up|went up|broken|mistake|leak|increas|grow|ris(?:es|ing)|rose|higher|stopped"
)
_FLAT = expression(r"(?i)negativ|\bzero\b|(?<![\d.])-?0(?:\.0+)?(?![\d.]*\d)|not training|(?:does|do|did)(?: not|n't) train")  # fmt: skip
"""What is said of a loss that stays about 0."""

_BAR = expression(
    r"^(?:\[?[\w=]{0,12}\]?:? ?)?(?P<name>[A-Za-z][^|%]{2,80}?):?\s+(?P<percent>\d{1,3})%\|[^|]{0,120}\| *(?P<done>\d{1,12})/(?P<all>\d{1,12}) \[(?P<took>[\d:]+)<"
)
_NO_PROGRESS = expression(
    r"(?i)(?:does|do|did)(?: not|n't) (?:\w+ ){0,3}(?:get better|improve|decrease|go down|fall|converge|learn)|\bno(?:t)? (?:improv|converg|learn|decreas)\w*|\bplateau"
)
_STUCK = expression(r"(?i)\b(?:stuck|hang\w*|hung|frozen?|freez\w*|stalls?|stops? at|nothing happens|does nothing|no progress)\b|卡")  # fmt: skip
_ALIKE = expression(r"(?i)\b(?:same|identical|equal)\b")
_EVALUATED = expression(
    r"(?i)^\W{0,3}(?:\* )?(?:test|val|valid|validation|eval|acc)\w*\b|^ ?\* acc"
)
_LOSSES = expression(
    r"(?i)\d ?(?:it|iter|step|samples?|img)s?/s(?:ec)?\b|"
    r"\b(?:\w{0,20}loss\w{0,20}|err(?:or)?(?:@\d)?|acc(?:uracy|@\d)?|lr|learning_rate)['\"]?\s?[:=]\s?\d+(?:\.\d+)?(?:e[-+]?\d+)?\b"
)
_STEEP_RATE = 1e-2
"""Learning rate at which an adaptive optimizer hardly ever converges."""


def find_concern(examination: Examination, question: str) -> Finding | None:
    """A benign finding that shows the quantity to be fine, a failure that shows it is not, or None."""
    if not question:
        return None
    return (
        (_judge_bar(examination) if _STUCK.search(question) else None)
        or find_speed(examination, question)
        or find_spikes(examination, question)
        or (_judge_equal_evaluation(examination) if _ALIKE.search(question) else None)
        or _judge_named(examination, question)
    )


def _judge_named(examination: Examination, question: str) -> Finding | None:
    """The first curve that the question names and that can be judged."""
    asked = [name for name, pattern in _ASKED.items() if re.search(pattern, question[:2000])]
    if "loss" in asked and _FLAT.search(question):
        read = read_curve(examination, "loss")
        policy = _judge_policy_loss(examination, read) if read is not None else None
        if policy is not None:
            return policy
    if not _WORRY.search(question):
        return None
    for name in asked:
        if name == "loss" and "validation loss" in asked and not _says_training(question):
            continue
        read = read_curve(examination, name)
        found = _judge(examination, name, read, question) if read is not None else None
        if found is not None:
            return found
    return None


def _says_training(question: str) -> bool:
    return (
        re.search(r"(?i)\btrain\w*[ _]loss\b.{0,30}\b(?:up|rise|jump|fluct)", question) is not None
    )


def _judge(examination: Examination, name: str, read: Curve, question: str) -> Finding | None:
    if name == "memory":
        return _judge_memory(read)
    if name == "entropy":
        return _judge_entropy(read)
    if name == "loss" and (policy := _judge_policy_loss(examination, read)) is not None:
        return policy
    start, end = read.start, read.end
    third = len(read.values) // 3
    middle = median(read.values[third : 2 * third + 1])
    if start > 0 and end < (1 - CHANGED) * start and end <= (1 + STILL) * middle:
        against = sum(b > a for a, b in pairwise(read.values))
        if against == 0:
            words = (
                f"the {name} falls without a break, from {start:.4g} to {end:.4g}: the model learns"
            )
        else:
            words = (
                f"the {name} goes up and down from one value to the next ({against} of {len(read.values) - 1} times up), which is the "
                f"noise of single batches or a small sample; its trend falls from {start:.4g} to {end:.4g}, so the model learns"
            )
        return Finding.of_question("trend", words, Level.BENIGN, Category.NUMERICAL, read.ends())
    if "loss" in name and (turned := _judge_turn(name, read, question)) is not None:
        return turned
    if start > 0 and end > 2 * start and end >= 0.9 * max(read.values) and "loss" in name:
        words = f"the {name} rises from {start:.4g} to {end:.4g} and does not come back: the run diverges"
        rate = read_curve(examination, "learning rate")
        if rate is not None and max(rate.values) >= _STEEP_RATE:
            words += (
                f"; the learning rate is {max(rate.values):.3g}, far too high for most optimizers"
            )
        else:
            words += "; a learning rate too high is the usual reason"
        return Finding.of_question("rises", words, Level.FAILURE, Category.NUMERICAL, read.ends(), "loss-divergence")  # fmt: skip
    return None


def _judge_turn(name: str, read: Curve, question: str) -> Finding | None:
    """A loss that fell and rises since, or one without any trend where progress is missed."""
    values = read.values
    low = min(range(len(values)), key=lambda i: values[i])
    tail = values[low:]
    if len(values) >= 8 and len(tail) >= 4 and low >= 2 and values[low] > 0:
        ups = sum(b > a for a, b in pairwise(tail))
        if tail[-1] >= 1.5 * values[low] and tail[-1] >= 0.95 * max(tail) and ups >= 0.75 * (len(tail) - 1):  # fmt: skip
            words = (
                f"the {name} fell to {values[low]:.4g} and rises since without coming back, to {tail[-1]:.4g}: the run diverges, and a learning rate "
                "that is too high for this phase (no decay, no clipping) is the usual reason"
            )
            places = [Evidence(read.file, n, t.strip()[:600]) for n, t in (read.places[low], read.places[-1])]  # fmt: skip
            return Finding.of_question("turns", words, Level.FAILURE, Category.NUMERICAL, places, "loss-divergence")  # fmt: skip
    if len(values) < 10 or not _NO_PROGRESS.search(question):
        return None
    if abs(read.end - read.start) > 0.1 * abs(read.start) or read.start <= 0:
        return None
    words = (
        f"the {name} shows no trend over {len(values)} values: {read.start:.4g} at first, {read.end:.4g} at last, between {min(values):.4g} and "
        f"{max(values):.4g}: it does not fall any more; a learning rate that is too high to settle or a batch that is too small keeps it there"
    )
    return Finding.of_question(
        "no_trend", words, Level.FAILURE, Category.NUMERICAL, read.ends(), "underfitting"
    )


def _judge_equal_evaluation(examination: Examination) -> Finding | None:
    """Evaluation values that are equal on all ranks: each evaluates the whole set, or they were averaged."""
    told: dict[str, dict[int, tuple[str, int, str]]] = defaultdict(dict)
    for file, number, text in sample_lines(examination):
        speaker, start = read_prefix(text)
        message = text[start:]
        if speaker.rank is None or not _EVALUATED.search(message):
            continue
        told[f"{file} {message.strip()}"].setdefault(speaker.rank, (file, number, text))
    alike = [by for by in told.values() if len(by) >= 2]
    if len(alike) < 2 or len(alike) != len(told):
        return None
    places = [Evidence(f, n, t.strip()[:600]) for f, n, t in list(alike[0].values())[:2]]
    words = (
        "every rank evaluates the whole validation set (it has no distributed sampler) or prints the average, so all print the same values: "
        "right, only the work is done on each rank; training itself uses different samples"
    )
    return Finding.of_question("equal_evaluation", words, Level.BENIGN, Category.DATA, places)


def find_work(examination: Examination) -> bool:
    """Losses printed at least twice, in whatever form: the run went on."""
    return sum(1 for _, _, text in sample_lines(examination) if _LOSSES.search(text)) >= 2


def _judge_memory(read: Curve) -> Finding | None:
    """Memory that rose and is level since is no leak."""
    values = read.values
    peaks = [a for a, b in pairwise(values) if b < 0.6 * a]
    if len(peaks) >= 2 and max((*peaks, values[-1])) <= 1.1 * min(peaks):
        words = (
            f"memory rises to about {median(peaks):.4g}{read.unit} and drops back {len(peaks)} times, as at the end of an epoch when loader workers end "
            "and give back what they cached; the peaks do not grow, so nothing leaks from one epoch to the next"
        )
        return Finding.of_question("memory_returns", words, Level.BENIGN, Category.OOM, read.ends())
    level = median(values[-max(3, len(values) // 3) :])
    since = next((i for i, v in enumerate(values) if v >= (1 - SETTLED) * level), len(values))
    rest = values[since:]
    if level <= 0 or len(rest) < max(3, len(values) // 3) or max(rest) > (1 + SETTLED) * level:
        return None
    if since == 0:
        words = f"memory is level at {level:.4g}{read.unit} all the time: nothing grows, no leak"
    else:
        words = (
            f"memory rose from {values[0]:.4g} to {level:.4g}{read.unit} and is level since: caches, loader workers and the "
            "data set fill it at first; a leak would go on growing"
        )
    kept = dict.fromkeys((read.places[0], read.places[since], read.places[-1]))
    places = tuple(Evidence(read.file, n, t.strip()[:600]) for n, t in kept)
    return Finding.of_question("memory_settled", words, Level.BENIGN, Category.OOM, places)


def _judge_entropy(read: Curve) -> Finding | None:
    if not 0 <= read.end < 0.05 * read.start:
        return None
    words = (
        f"the entropy of the policy collapsed from {read.start:.3g} to {read.end:.3g}: it hardly explores any more, all answers to a "
        "prompt become alike, advantages and gradients vanish and the reward cannot rise further"
    )
    return Finding.of_question("entropy_gone", words, Level.FAILURE, Category.NUMERICAL, read.ends(), "policy-collapse")  # fmt: skip


def _judge_policy_loss(examination: Examination, read: Curve) -> Finding | None:
    """A policy-gradient loss is no measure of progress; the reward is."""
    reward, kl = read_curve(examination, "reward"), read_curve(examination, "KL")
    if reward is None or kl is None or max(map(abs, read.values)) > 2:
        return None
    if reward.end <= reward.start or abs(kl.end) > 5:
        return None
    words = (
        f"the loss of policy-gradient training is no measure of progress: its advantage part is about 0 by design and what is left is the KL "
        f"term, which grows as the policy leaves its reference (KL {kl.start:.3g} to {kl.end:.3g}); the reward rises from {reward.start:.3g} "
        f"to {reward.end:.3g}, so the model learns"
    )
    return Finding.of_question("policy_loss", words, Level.BENIGN, Category.NUMERICAL, read.ends())


def _judge_bar(examination: Examination) -> Finding | None:
    """The last progress bar of the log: it moved, or it stands at nothing."""
    last: tuple[str, tuple[int, str], re.Match[str]] | None = None
    first: tuple[str, tuple[int, str], re.Match[str]] | None = None
    after = 0
    for file, number, text in sample_lines(examination):
        if "%|" not in text:
            after += 1
            continue
        if (bar := _BAR.search(text)) is None:
            continue
        after = 0
        if first is None or first[2]["name"] != bar["name"] or first[0] != file:
            first = (file, (number, text), bar)
        last = (file, (number, text), bar)
    if (
        first is None
        or last is None
        or re.match(r"(?i)\s{0,9}(?:epoch|train|step|iter)", last[2]["name"])
    ):
        return None
    done, total, name = int(last[2]["done"]), int(last[2]["all"]), last[2]["name"].strip()
    places = tuple(Evidence(f, n, t.strip()[:600]) for f, (n, t), _ in dict.fromkeys((first, last)))
    if done == 0 < total:
        pool = re.search(r"num_proc=(\d+)", last[1][1])
        why = (
            f": its {pool[1]} worker processes were forked and wait for ever (a lock, a thread pool or a tokenizer that was in use "
            "before the fork); one process (num_proc 1) or starting them before the model is loaded avoids it"
            if pool is not None and int(pool[1]) > 1
            else ": nothing of it was done"
        )
        return Finding.of_question("bar_at_zero", f"'{name}' stands at 0 of {total}{why}", Level.FAILURE, Category.DATA, places, "training-stall")  # fmt: skip
    if first[2] is not last[2] and int(first[2]["done"]) < done and after <= 3:
        words = (
            f"'{name}' is slow, not stuck: it went from {first[2]['done']} to {done} of {total}; the CPUs do this preprocessing and the GPUs "
            "idle until it is done"
        )
        return Finding.of_question("bar_moves", words, Level.BENIGN, Category.PERFORMANCE, places)
    return None
