"""How is an explanation tested from the page? The plan is shown, the command copied, the result entered or added.

Nothing is run from here: a person runs the command where the job runs, and says how it ended.
"""

from __future__ import annotations

from html import escape

import streamlit as st

from firstfault.access import Role
from firstfault.errors import FirstfaultError
from firstfault.experiments.by_hand import (
    Claim,
    enter_trials,
    next_by_hand,
    plan_test,
    put_on_record,
)
from firstfault.experiments.outcome import say_stored
from firstfault.experiments.planning import write_plan
from firstfault.incidents.acceptance import Upload
from firstfault.incidents.experiments import StoredExperiment
from firstfault.incidents.records import Incident
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.ui.door import service
from firstfault.ui.marks import plain, sentence
from firstfault.ui.visitor import may, require
from firstfault.ui.words import name_category
from firstfault_tools.experiments.trial import Outcome

UNKNOWN = "not known"
RATES = {UNKNOWN: None, "always": 1.0, "about 9 of 10": 0.9, "about half": 0.5, "about 3 of 10": 0.3, "about 1 of 10": 0.1}  # fmt: skip
EXPECTED = {"fails": True, "works": False}


def show_experiments(incident: Incident, diagnosis: Diagnosis) -> None:
    """What is being tested for this incident, and a form for one more."""
    stored = service().record.experiments.list(incident.id)
    if not stored and not may(Role.INVESTIGATE):
        return
    count = f" ({len(stored)})" if stored else ""
    with st.expander(f"Test an explanation{count}", icon=":material/science:"):
        for one in stored:
            _show_stored(one)
        if may(Role.INVESTIGATE):
            _offer_new(incident, diagnosis)
            _offer_record(incident)


def _show_stored(stored: StoredExperiment) -> None:
    verdict = stored.result.verdict.value if stored.result else f"open, {len(stored.trials)} trials"
    st.html(
        f'<section class="ff" aria-label="Experiment {escape(stored.id)}"><p><b>{escape(sentence(stored.design.hypothesis))}</b> '
        f'<span class="ff-tag">{escape(verdict)}</span></p><p class="ff-muted">{escape(say_stored(stored))}</p></section>'
    )
    try:
        waiting = next_by_hand(stored)
    except FirstfaultError as error:
        st.caption(plain(str(error)))
        return
    if waiting is None:
        return
    st.caption(f"Trial {waiting.number}. Run this yourself, where the job runs; then say how it ended.")  # fmt: skip
    st.code(waiting.command, language=None, wrap_lines=True)
    if may(Role.INVESTIGATE):
        _ask_outcome(stored)


def _ask_outcome(stored: StoredExperiment) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key=f"trial-{stored.id}"):  # fmt: skip
        times = st.number_input("How many times", 1, 100, 1, key=f"times-{stored.id}")
        for outcome, label in ((Outcome.FAILED, "It failed"), (Outcome.PASSED, "It worked")):
            if st.button(label, key=f"{outcome.value}-{stored.id}"):
                _enter(stored, outcome, int(times))


def _enter(stored: StoredExperiment, outcome: Outcome, times: int) -> None:
    try:
        require(Role.INVESTIGATE)
        enter_trials(service(), stored.id, outcome, times)
    except FirstfaultError as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    st.rerun()


def _offer_new(incident: Incident, diagnosis: Diagnosis) -> None:
    known = [h.root_cause for h in diagnosis.hypotheses]
    with st.form(f"new-experiment-{incident.id}", border=True):
        chosen = st.selectbox(
            "Explanation", list(range(len(known))), index=0 if known else None, key="experiment-explanation",
            format_func=lambda i: f"{known[i]} ({name_category(diagnosis.hypotheses[i].category)})"
            if diagnosis.hypotheses[i].category else known[i],
        )  # fmt: skip
        own = st.text_input(
            "What you suspect, in a sentence", key="experiment-claim", max_chars=300
        )
        command = st.text_input("Command for one trial", key="experiment-command", max_chars=2_000, placeholder="env NCCL_P2P_DISABLE=1 ./run.sh --steps 20")  # fmt: skip
        expected = st.radio("If that is right, the command", list(EXPECTED), horizontal=True, key="experiment-expected")  # fmt: skip
        rate = st.selectbox("The fault shows", list(RATES), key="experiment-rate")
        if not st.form_submit_button("Show the plan", icon=":material/preview:"):
            return
    hypothesis = own.strip() or (known[chosen] if chosen is not None else "")
    explanation = None if chosen is None else chosen + 1
    claim = Claim(hypothesis, command, EXPECTED[expected], RATES[rate], explanation)
    try:
        require(Role.INVESTIGATE)
        design = plan_test(service(), claim, incident.id)
    except FirstfaultError as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    st.code("\n".join(write_plan(design)), language=None, wrap_lines=True)
    st.button(
        "Put it on record", type="primary", key="experiment-store", on_click=_store, args=(claim, incident.id)
    )  # fmt: skip


def _store(claim: Claim, incident: str) -> None:
    """Runs before the page is drawn again; the design is made anew, since a callback outlives its run."""
    try:
        require(Role.INVESTIGATE)
        put_on_record(service(), plan_test(service(), claim, incident), incident)
    except FirstfaultError as error:
        st.session_state["experiment-error"] = plain(str(error))


def _offer_record(incident: Incident) -> None:
    """A record that `firstfault experiment` wrote elsewhere joins the evidence, which is weighed again."""
    if error := st.session_state.pop("experiment-error", ""):
        st.error(error, icon=":material/error:")
    added = st.file_uploader(
        "Record of an experiment from the command line (firstfault experiment show ID --json)",
        type="json", key=f"experiment-record-{incident.id}", max_upload_size=16,
    )  # fmt: skip
    if added is None or not st.button("Add it to the evidence", key="experiment-add"):
        return
    try:
        require(Role.INVESTIGATE)
        data = added.getvalue()
        service().add_evidence(incident.id, [Upload(added.name, data)])
    except FirstfaultError as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    st.rerun()
