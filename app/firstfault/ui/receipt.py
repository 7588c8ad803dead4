"""What was read? One line under the title; what was left out and hidden is never silent."""

from __future__ import annotations

from html import escape

import streamlit as st

from firstfault.investigation.diagnosis import InputReceipt
from firstfault.investigation.partial import is_partial
from firstfault.ui.marks import icon

MAX_NAMES = 3


def write_receipt(receipt: InputReceipt) -> str:
    """The receipt as HTML."""
    files = len(receipt.files)
    names = ", ".join(escape(f) for f in receipt.files[:MAX_NAMES])
    more = f" and {files - MAX_NAMES} more" if files > MAX_NAMES else ""
    parts = [f"<b>{files} file{'s' if files != 1 else ''}</b> {names}{more}"]
    if is_partial(receipt):
        parts.append(f"<b>{receipt.lines_read:,}</b> lines, read before the reading was stopped")
    elif receipt.lines_read == receipt.lines_total:
        parts.append(f"<b>{receipt.lines_total:,}</b> lines, all read")
    else:
        parts.append(f"<b>{receipt.lines_read:,}</b> of {receipt.lines_total:,} lines read")
    if receipt.ranks_seen:
        seen = len(receipt.ranks_seen)
        world = f" of {receipt.world_size}" if receipt.world_size else ""
        parts.append(f"<b>{seen}{world}</b> rank{'s' if seen != 1 or world else ''} seen")
    if receipt.time_range:
        parts.append(_range(*receipt.time_range))
    if receipt.redactions:
        kinds = ", ".join(f"{n} {escape(k)}" for k, n in receipt.redactions.items())
        parts.append(
            f"{icon('lock')} <b>{sum(receipt.redactions.values())}</b> secrets hidden ({kinds})"
        )
    if receipt.skipped:
        parts.append(f"{icon('block')} <b>{len(receipt.skipped)}</b> skipped")
    return f'<div class="ff ff-receipt" role="note" aria-label="What was read">{"".join(f"<span>{p}</span>" for p in parts)}</div>'


def show_receipt(receipt: InputReceipt) -> None:
    """Draw it; reasons for what was skipped fold out."""
    st.html(write_receipt(receipt))
    show_skipped(receipt)


def show_skipped(receipt: InputReceipt) -> None:
    """What was not read and why, in a fold; nothing where all was read."""
    if receipt.skipped:
        with st.expander(f"Not read: {len(receipt.skipped)}", icon=":material/block:"):
            rows = "".join(
                f'<tr><td class="mono">{escape(s.what)}</td><td>{escape(s.why)}</td></tr>'
                for s in receipt.skipped[:200]
            )
            st.html(
                f'<table class="ff ff-table"><thead><tr><th>What</th><th>Why</th></tr></thead><tbody>{rows}</tbody></table>'
            )


def _range(first: str, last: str) -> str:
    a, b = first.replace("T", " ").removesuffix("Z"), last.replace("T", " ").removesuffix("Z")
    if a[:10] == b[:10]:
        return f"{a} to {b[11:]} UTC"
    return f"{a} to {b} UTC"
