"""Which words and icons stand for verdicts, confidence, states and phases? One table for the page."""

from __future__ import annotations

from firstfault.investigation.diagnosis import ChainRole, PhaseName, PhaseStatus
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Category, Confidence, Verdict


@dataclass(frozen=True, slots=True)
class Look:
    """Material icon, word, and tone (a CSS class suffix)."""

    icon: str
    word: str
    tone: str


VERDICTS = {
    Verdict.FAULT: Look("error", "Fault", "fault"),
    Verdict.WARNING: Look("warning", "Warning", "warn"),
    Verdict.HEALTHY: Look("check_circle", "Healthy", "ok"),
    Verdict.UNKNOWN: Look("help", "Not enough evidence", "unknown"),
}
PHASES = {
    PhaseName.TRIAGE: "Triage",
    PhaseName.LOCALIZE: "Localize",
    PhaseName.ISOLATE: "Isolate",
    PhaseName.ROOT_CAUSE: "Root cause",
    PhaseName.RESOLVE: "Resolve",
}
QUESTIONS = {
    PhaseName.TRIAGE: "What became of the run, and how bad is it?",
    PhaseName.LOCALIZE: "On which rank, host or GPU did it begin?",
    PhaseName.ISOLATE: "Which explanations fit, and what tells them apart?",
    PhaseName.ROOT_CAUSE: "What is the first cause, and what proves it?",
    PhaseName.RESOLVE: "What helps now and for good, and how is that verified?",
}
PHASE_STATES = {
    PhaseStatus.DONE: Look("check_circle", "done", "ok"),
    PhaseStatus.OPEN: Look("radio_button_partial", "open", "warn"),
    PhaseStatus.SKIPPED: Look("remove_circle", "not needed", "plain"),
}
ROLES = {
    ChainRole.INITIATING: Look("flag", "first fault", "fault"),
    ChainRole.CASCADE: Look("subdirectory_arrow_right", "follows from it", "warn"),
    ChainRole.TEARDOWN: Look("power_settings_new", "shutdown", "plain"),
}
CATEGORIES = {
    Category.OOM: "Out of memory",
    Category.CODE_BUG: "Code bug",
}
CONFIDENCE = {
    Confidence.CONFIRMED: "a quoted line names the cause itself",
    Confidence.LIKELY: "the evidence points here, not confirmed yet",
    Confidence.POSSIBLE: "a lead, not a fact: only a pattern fits",
    Confidence.UNKNOWN: "the evidence does not reach as far as a cause",
}
HEALTHY_CERTAINTY = "By what was read"
HEALTHY_CONFIDENCE = "no failure is reported in what was read, and the run goes on or ended well"


def name_category(category: Category | None) -> str:
    """Category as a person writes it; empty for none."""
    if category is None:
        return ""
    return CATEGORIES.get(category, category.value.replace("_", " ").capitalize())
