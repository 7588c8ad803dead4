"""What else is known? The chain of events, tool results and the raw diagnosis, folded."""

from __future__ import annotations

import json
from html import escape

import streamlit as st

from firstfault.investigation.diagnosis import Diagnosis
from firstfault.ui.marks import icon
from firstfault.ui.words import ROLES

MAX_ROWS = 200


def show_details(diagnosis: Diagnosis) -> None:
    """Folds under the answer."""
    if diagnosis.cascade:
        with st.expander(f"Chain of events: {len(diagnosis.cascade)}", icon=":material/timeline:"):
            st.html(write_chain(diagnosis))
    findings = [(p.name.value.replace("_", " "), f) for p in diagnosis.phases for f in p.findings]
    if findings:
        with st.expander(f"Findings by phase: {len(findings)}", icon=":material/checklist:"):
            rows = "".join(
                f"<tr><td>{escape(a)}</td><td>{escape(b)}</td></tr>" for a, b in findings
            )
            st.html(
                f'<table class="ff ff-table"><thead><tr><th>Phase</th><th>Finding</th></tr></thead><tbody>{rows}</tbody></table>'
            )
    if diagnosis.tools:
        with st.expander(f"Tool results: {', '.join(diagnosis.tools)}", icon=":material/build:"):
            st.json(dict(diagnosis.tools), expanded=1)
    with st.expander("Diagnosis as JSON", icon=":material/data_object:"):
        text = json.dumps(diagnosis.to_json(), ensure_ascii=False, indent=1)
        st.download_button(
            "Download JSON", text, "diagnosis.json", "application/json", on_click="ignore"
        )
        st.code(text[:60_000], language="json", height=360)


def write_chain(diagnosis: Diagnosis) -> str:
    """The chain as a table."""
    rows = []
    for link in diagnosis.cascade[:MAX_ROWS]:
        look = ROLES[link.role]
        place = f"{link.file}:{link.line}" if link.line else str(link.file)
        rows.append(
            f'<tr><td><span class="ff-tag ff-tone-{look.tone}">{icon(look.icon)} {look.word}</span></td>'
            f'<td class="num">{"" if link.rank is None else link.rank}</td><td class="mono">{escape(place)}</td>'
            f'<td class="mono">{escape(link.text[:600])}</td></tr>'
        )
    return (
        '<table class="ff ff-table"><thead><tr><th>Part</th><th class="num">Rank</th><th>Where</th>'
        f"<th>Line</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )
