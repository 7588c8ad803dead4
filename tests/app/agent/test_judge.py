"""Which explanation leads: the rules of the judge, row by row."""

from __future__ import annotations

from dataclasses import replace

from tests.rows import each_row

from firstfault.agent.judge import INTERRUPTIONS, Explanation, Sound, rule_on
from firstfault.investigation.diagnosis import LedBy
from firstfault_tools.findings import Category, Confidence, Verdict

FAULT, HEALTHY, UNKNOWN = Verdict.FAULT, Verdict.HEALTHY, Verdict.UNKNOWN
QUIET, GOES_ON, STEPS, OUTLIVED = Sound.QUIET, Sound.GOES_ON, Sound.STEPS, Sound.OUTLIVED
OOM, DATA = Category.OOM, Category.DATA
CONFIRMED, LIKELY, POSSIBLE = Confidence.CONFIRMED, Confidence.LIKELY, Confidence.POSSIBLE


def tools(
    verdict: Verdict, category: Category | None, confidence: Confidence, failures: int = 0
) -> Explanation:
    return Explanation(
        LedBy.RULE, verdict, category, "by tools", confidence, rank=1, failures=failures
    )


def model(verdict: Verdict, category: Category | None, **more: object) -> Explanation:
    given = {"lines": ("F1:1",), "rank": 1, **more}
    return Explanation(LedBy.MODEL, verdict, category, "by model", **given)  # type: ignore[arg-type]


ROWS = [
    # tools, model, earned -> led by, disputed, confidence
    (tools(FAULT, OOM, LIKELY), model(FAULT, DATA), False, LedBy.RULE, False, LIKELY),
    (tools(UNKNOWN, None, Confidence.UNKNOWN), model(FAULT, DATA), False, LedBy.RULE, False, Confidence.UNKNOWN),
    (tools(UNKNOWN, None, Confidence.UNKNOWN), model(FAULT, DATA), True, LedBy.MODEL, False, POSSIBLE),
    (tools(UNKNOWN, None, Confidence.UNKNOWN), model(FAULT, DATA, seconded=True), True, LedBy.MODEL, False, LIKELY),
    (tools(FAULT, OOM, POSSIBLE), model(FAULT, DATA), True, LedBy.MODEL, False, POSSIBLE),
    (tools(FAULT, OOM, LIKELY), model(FAULT, DATA), True, LedBy.MODEL, True, POSSIBLE),
    (tools(FAULT, OOM, LIKELY), model(FAULT, OOM), True, LedBy.MODEL, False, LIKELY),
    (tools(FAULT, OOM, LIKELY), model(FAULT, OOM, rank=7), True, LedBy.MODEL, True, LIKELY),
    (tools(FAULT, OOM, CONFIRMED), model(FAULT, DATA), True, LedBy.RULE, False, CONFIRMED),
    (tools(FAULT, OOM, CONFIRMED), model(FAULT, OOM), True, LedBy.RULE, False, CONFIRMED),
    (tools(FAULT, OOM, CONFIRMED), model(FAULT, DATA, contradicts=("F1:9",)), True, LedBy.MODEL, True, POSSIBLE),
    (tools(FAULT, OOM, LIKELY), model(FAULT, DATA, lines=()), True, LedBy.RULE, False, LIKELY),
    (tools(FAULT, OOM, POSSIBLE), model(HEALTHY, None), True, LedBy.RULE, True, POSSIBLE),
    (tools(UNKNOWN, None, Confidence.UNKNOWN, failures=1), model(HEALTHY, None), True, LedBy.RULE, True, Confidence.UNKNOWN),
    (tools(UNKNOWN, None, Confidence.UNKNOWN), model(HEALTHY, None), True, LedBy.RULE, True, Confidence.UNKNOWN),
    (tools(UNKNOWN, None, Confidence.UNKNOWN), model(HEALTHY, None, sound=QUIET), True, LedBy.MODEL, True, POSSIBLE),
    (tools(UNKNOWN, None, Confidence.UNKNOWN, failures=1), model(HEALTHY, None, sound=QUIET), True, LedBy.RULE, True, Confidence.UNKNOWN),
    (tools(FAULT, Category.NUMERICAL, LIKELY, failures=1), model(HEALTHY, None, sound=STEPS), True, LedBy.MODEL, True, POSSIBLE),
    (tools(FAULT, Category.NUMERICAL, LIKELY, failures=1), model(HEALTHY, None, sound=GOES_ON), True, LedBy.RULE, True, LIKELY),
    (tools(FAULT, Category.NUMERICAL, LIKELY, failures=1), model(HEALTHY, None, sound=QUIET), True, LedBy.RULE, True, LIKELY),
    (tools(FAULT, Category.NUMERICAL, CONFIRMED), model(HEALTHY, None, sound=STEPS, contradicts=("F1:9",)), True, LedBy.RULE, True, CONFIRMED),
    (tools(UNKNOWN, None, Confidence.UNKNOWN), model(HEALTHY, None, sound=GOES_ON), True, LedBy.MODEL, False, POSSIBLE),
    (tools(UNKNOWN, None, Confidence.UNKNOWN), model(HEALTHY, None, sound=OUTLIVED), True, LedBy.MODEL, False, LIKELY),
    (tools(HEALTHY, None, LIKELY), model(FAULT, DATA), True, LedBy.MODEL, True, POSSIBLE),
    (tools(FAULT, OOM, CONFIRMED), model(FAULT, OOM, rank=7), True, LedBy.MODEL, True, LIKELY),
    (tools(FAULT, OOM, CONFIRMED), model(FAULT, OOM, rank=None), True, LedBy.RULE, False, CONFIRMED),
    (tools(HEALTHY, None, LIKELY), model(HEALTHY, None), True, LedBy.MODEL, False, LIKELY),
    (tools(HEALTHY, None, CONFIRMED), model(FAULT, DATA), True, LedBy.MODEL, True, POSSIBLE),
    (tools(HEALTHY, None, CONFIRMED), model(FAULT, DATA, seconded=True), True, LedBy.MODEL, True, LIKELY),
    (tools(HEALTHY, None, CONFIRMED), model(FAULT, DATA, lines=()), True, LedBy.RULE, False, CONFIRMED),
    (tools(FAULT, OOM, LIKELY), model(HEALTHY, None, sound=OUTLIVED), True, LedBy.RULE, True, LIKELY),
    (tools(FAULT, Category.SCHEDULER, LIKELY), model(HEALTHY, None, sound=OUTLIVED), True, LedBy.MODEL, True, LIKELY),
    (tools(FAULT, Category.SCHEDULER, POSSIBLE), model(HEALTHY, None, sound=OUTLIVED), True, LedBy.MODEL, True, LIKELY),
    (tools(FAULT, Category.SCHEDULER, LIKELY), model(HEALTHY, None, sound=GOES_ON), True, LedBy.RULE, True, LIKELY),
    (tools(FAULT, Category.SCHEDULER, CONFIRMED), model(HEALTHY, None, sound=OUTLIVED, contradicts=("F1:9",)), True, LedBy.RULE, True, CONFIRMED),
    (tools(Verdict.WARNING, OOM, LIKELY, failures=1), model(HEALTHY, None, sound=OUTLIVED), True, LedBy.MODEL, True, LIKELY),
    (tools(Verdict.WARNING, OOM, LIKELY, failures=1), model(HEALTHY, None, sound=GOES_ON), True, LedBy.RULE, True, LIKELY),
    (tools(Verdict.WARNING, OOM, LIKELY, failures=1), model(HEALTHY, None), True, LedBy.RULE, True, LIKELY),
    (tools(FAULT, OOM, CONFIRMED), model(HEALTHY, None, sound=OUTLIVED, contradicts=("F1:9",)), True, LedBy.RULE, True, CONFIRMED),
    (tools(FAULT, Category.PERFORMANCE, LIKELY), model(HEALTHY, None, sound=GOES_ON), True, LedBy.MODEL, True, POSSIBLE),
    (tools(FAULT, Category.PERFORMANCE, LIKELY), model(HEALTHY, None), True, LedBy.RULE, True, LIKELY),
    (tools(FAULT, Category.PERFORMANCE, CONFIRMED), model(HEALTHY, None, sound=OUTLIVED, contradicts=("F1:9",)), True, LedBy.RULE, True, CONFIRMED),
    (tools(FAULT, OOM, LIKELY), model(UNKNOWN, None, lines=()), True, LedBy.MODEL, True, Confidence.UNKNOWN),
]  # fmt: skip


@each_row(("ours", "theirs", "earned", "led_by", "disputed", "confidence"), ROWS)
def test_rules_of_the_judge(
    ours: Explanation,
    theirs: Explanation,
    earned: bool,
    led_by: LedBy,
    disputed: bool,
    confidence: Confidence,
) -> None:
    ruling = rule_on(ours, (theirs,), earned=earned)
    assert (ruling.leader.proposer, ruling.disputed) == (led_by, disputed)
    assert ruling.leader.confidence is confidence
    assert ruling.why
    other = theirs if led_by is LedBy.RULE else ours
    assert [e.cause for e in ruling.others] == [other.cause]


def test_the_same_line_is_the_same_cause_and_the_model_may_add_the_rank() -> None:
    ours = replace(tools(FAULT, Category.PERFORMANCE, CONFIRMED), rank=None, lines=("F1:1", "F1:2"))
    ruling = rule_on(ours, (model(FAULT, Category.HARDWARE, rank=13),), earned=True)
    assert (ruling.leader.rank, ruling.leader.confidence, ruling.disputed) == (13, LIKELY, False)
    for other in (replace(ours, lines=("F1:9",)), replace(ours, category=OOM)):
        apart = rule_on(other, (model(FAULT, Category.HARDWARE),), earned=True)
        assert apart.leader.proposer is LedBy.RULE


def test_a_confirmed_cause_is_said_in_more_detail_where_the_model_agrees() -> None:
    ruling = rule_on(
        tools(FAULT, OOM, CONFIRMED), (model(FAULT, OOM, host="gpu-a17"),), earned=True
    )
    assert ruling.leader.cause == "by tools; by model"
    assert ruling.leader.host == "gpu-a17"
    same = Explanation(LedBy.MODEL, FAULT, OOM, "By tools.", rank=1, lines=("F1:1",))
    assert rule_on(tools(FAULT, OOM, CONFIRMED), (same,), earned=True).leader.cause == "by tools"


def test_reasoning_is_never_confirmed() -> None:
    for verdict in Verdict:
        for confidence in Confidence:
            for seconded in (True, False):
                theirs = model(
                    FAULT, OOM, seconded=seconded, confidence=CONFIRMED, contradicts=("F1:2",)
                )
                leader = rule_on(tools(verdict, OOM, confidence), (theirs,), earned=True).leader
                assert leader.proposer is LedBy.RULE or leader.confidence is not CONFIRMED


def test_no_reasoning_makes_a_confirmed_fault_or_one_that_goes_on_healthy() -> None:
    """Over all readings of the tools: what may become healthy is slowness, judged numbers, an interruption, or no fault."""
    for verdict in (FAULT, Verdict.WARNING, UNKNOWN):
        for category in Category:
            for confidence in Confidence:
                for sound in Sound:
                    theirs = model(HEALTHY, None, sound=sound, contradicts=("F1:9",))
                    leader = rule_on(tools(verdict, category, confidence), (theirs,), earned=True)
                    if leader.leader.verdict is HEALTHY:
                        assert sound is not Sound.UNSEEN
                        assert confidence is not CONFIRMED
                        assert leader.leader.confidence is not CONFIRMED
                        assert leader.disputed or verdict is UNKNOWN
                        if verdict is FAULT:
                            assert sound is STEPS or category in {
                                *INTERRUPTIONS,
                                Category.PERFORMANCE,
                            }
                            assert sound is not QUIET
