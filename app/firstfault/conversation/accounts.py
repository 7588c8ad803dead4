"""How is an incident told to somebody else? To a manager, a newcomer, a ticket, as five whys."""

from __future__ import annotations

from firstfault.conversation.glossary import explain_terms
from firstfault.conversation.telling import SURE, Telling
from firstfault.conversation.topics import team_of, topics_in
from firstfault.investigation.headline import say_plainly
from firstfault.postmortem.victims import ranks_in_trouble
from firstfault_tools.findings import Category, Verdict
from firstfault_tools.log.place import name_ranks


def tell_whys(t: Telling) -> str:
    """The five whys as far as the evidence goes."""
    whys = t.report.whys
    if not whys:
        return f"There is no fault to ask whys about: {t.cause} {t.main}."
    rows = [
        f"{n}. {w.question} "
        + (
            t.cited(w.because)
            if w.because
            else "The evidence stops here; this is for you to fill in."
        )
        for n, w in enumerate(whys, 1)
    ]
    return f"The five whys, as far as the evidence goes, to the cause: {t.cause}.\n\n" + "\n".join(
        rows
    )


def tell_manager(t: Telling) -> str:
    """The incident for somebody who does not know the field."""
    d = t.diagnosis
    kind = {
        Category.OOM: "a GPU or host ran out of memory",
        Category.COMMUNICATION: "the machines lost contact with each other",
        Category.NUMERICAL: "the calculation became unstable",
        Category.HARDWARE: "a piece of hardware failed",
        Category.ENVIRONMENT: "something in the installation of the machines did not fit",
        Category.DATA: "the input data could not be read as expected",
        Category.CHECKPOINT: "saving or loading the training state went wrong",
        Category.PERFORMANCE: "it runs more slowly than it should",
        Category.SCHEDULER: "the cluster's scheduler ended it",
        Category.CODE_BUG: "there is an error in the training code",
    }
    if d.verdict is Verdict.HEALTHY:
        return f"The training run is fine; what looked alarming is harmless. {t.cause} {t.main}."
    what = kind.get(d.category, "its cause is still being looked for") if d.category else "its cause is still being looked for"  # fmt: skip
    verb = "stopped" if d.verdict is Verdict.FAULT else "needs attention"
    then = d.fixes[0].text if d.fixes else (f"collect {d.next_artefacts[0].what}" if d.next_artefacts else "")  # fmt: skip
    rows = [f"- What it is: {t.cause} {t.main}.", f"- How sure: {SURE[d.confidence].lower()}."]
    rows += [f"- Where: {t.place}."] if t.place else []
    rows += [f"- Next: {then}"] if then else []
    rows += [f"- Whom it needs: {team_of(d.category, d.root_cause)}."] if d.category else []
    return f"The training run {verb} because {what}.\n\n" + "\n".join(rows)


def tell_newcomer(t: Telling) -> str:
    """The incident with its terms explained."""
    d = t.diagnosis
    verb = {
        Verdict.HEALTHY: "is fine",
        Verdict.WARNING: "goes on, but something is not right",
        Verdict.FAULT: "stopped",
        Verdict.UNKNOWN: "had a problem whose cause is open",
    }[d.verdict]
    where = f" It began at {t.place}." if t.place else ""
    others = " The other messages follow from it: every process waits for all others, so one failure stops them all." if len(d.cascade) > 1 else ""  # fmt: skip
    terms = explain_terms(
        f"{d.root_cause} {' '.join(x.text for x in d.cascade[:4])} {'rank' if t.place else ''}"
    )
    words = "\n\nThe words:\n\n" + "\n".join(f"- {x}" for x in terms) if terms else ""
    do = (
        f"\n\nWhat to do: {d.fixes[0].text} {t.sources.marks(d.fixes[0].citations, d)}"
        if d.fixes
        else ""
    )
    return f"In short: the training {verb}. {t.cause} {t.main}.{where}{others} {SURE[d.confidence]}.{words}{do}"


def tell_ticket(t: Telling) -> str:
    """A ticket to paste: facts with their lines, for the team that is named or that the cause lies with."""
    d = t.diagnosis
    first, onset, saved = d.first_line, t.record.onset, t.record.resume_from
    team = team_of(d.category, d.root_cause) or "the owner of the run"
    asked = next((x.team for x in topics_in(t.asked.text)), team)
    headline, detail = say_plainly(d)
    text = [f"Title: {headline}"]
    text += [f"Detail: {detail[:400]}"] if detail else []
    text += [f"Where: {t.place}"] if t.place else []
    ranks = ranks_in_trouble(d, t.record.artefacts)
    text += [f"Trouble afterwards on: {name_ranks(ranks)}"] if ranks else []
    text.append(f"Certainty: {d.confidence.value}")
    if d.input.time_range:
        text.append(f"Time (UTC): {d.input.time_range[0]} to {d.input.time_range[1]}")
    if d.input.world_size:
        text.append(f"Size: {d.input.world_size} ranks")
    if onset is not None:
        row = onset.row
        text.append(
            f"First sign: step {row.step}, {onset.metric.replace('_', ' ')} {onset.value:.3g} instead of {onset.before:.3g} ({row.file}:{row.line})"
        )
        text += [
            f"Written shortly before, not proven to be the reason: {x.text.strip()[:240]} ({x.file}:{x.line})"
            for x in t.record.written_before(row)
        ]
    if first is not None:
        text.append(f"Evidence: {first.file}:{first.line}: {first.text.strip()[:300]}")
    text += [f"Resume from: {saved.name} ({saved.file}:{saved.line})"] if saved is not None else []
    text += [f"Asked for: {d.fixes[0].text}"] if d.fixes else []
    text += [f"Still to collect: {a.what}" for a in d.next_artefacts[:2]]
    other = f" (the verdict itself points to {team})" if asked != team else ""
    body = "\n".join(text).replace("```", "` ` `")
    return f"A ticket for {asked}{other} {t.main}:\n\n```text\n{body}\n```"


def tell_postmortem(t: Telling) -> str:
    """What would keep it from coming back."""
    rows = [f"- {x}" for x in t.report.prevention[:6]]
    rows = [f"- {f.text} {t.sources.marks(f.citations, t.diagnosis)}" for f in t.diagnosis.fixes if f.kind == "structural"][:4] + rows  # fmt: skip
    head = (
        f"So that it does not come back ({t.cause} {t.main}):" if rows else f"{t.cause} {t.main}."
    )
    return head + ("\n\n" + "\n".join(rows) if rows else "") + "\n\nThe whole post-mortem: the Post-mortem button, or `firstfault postmortem`."  # fmt: skip
