"""Where does an incident begin? One box, bundled examples, and a path for files too large to upload."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from firstfault.access import Mode, Role
from firstfault.errors import FirstfaultError, UsageError
from firstfault.intake.message import Split, is_statement, read_paths, split_message
from firstfault.intake.places import read_roots, refuse_outside, refuse_place
from firstfault.service import NamedPath, NewIncident, PastedText, Upload
from firstfault.ui.door import next_key, service, spend_key
from firstfault.ui.examples import Example, list_examples
from firstfault.ui.marks import plain
from firstfault.ui.navigation import open_incident
from firstfault.ui.visitor import mode, require

Given = PastedText | Upload | NamedPath
HERO = """
<div class="ff ff-hero"><h1>What broke first?</h1>
<p>Paste a log or a stack trace, drop files, or ask. You get the first fault, its rank and host, the lines
that prove it, and what to run next.</p></div>
"""


def show_inbox() -> None:
    """The first screen. It stands in one room, which is emptied before an incident takes its place."""
    room = st.empty()
    with room.container():
        _show_ways_in(room)


def _show_ways_in(room: DeltaGenerator) -> None:
    st.html(HERO)
    with st.container(key="first-box"):
        given = st.chat_input(
            "Paste a log, drop files, or ask a question",
            accept_file="multiple",
            key="new-incident",
            height=112,
        )
    with st.container(key="first-more", horizontal=True, gap="small"):
        _show_folder(room)
        _show_paths(room)
    if given is not None:
        begin(read_inputs(given.text or "", given.files), key="new", room=room)
    _show_examples(room)


def read_inputs(text: str, files: Sequence[Any]) -> NewIncident:
    """What the box holds, as the service takes it. Uploads stay bytes; nothing is kept here."""
    split = split_message(text)
    inputs: list[Given] = [Upload(f.name, f.getvalue()) for f in files]
    paths = read_paths(text) if may_name_paths() else ()
    if paths and not _refuse_paths(paths):
        return NewIncident((*inputs, *(NamedPath(p) for p in paths)))
    if is_statement(split.question) and not split.log and service().recognises(split.question):
        split = Split("", split.question)
    if split.log:
        inputs.append(PastedText(split.log))
    return NewIncident(tuple(inputs), split.question)


def begin(new: NewIncident, key: str, room: DeltaGenerator) -> None:
    """Start the incident and open it; say what is wrong where that fails."""
    try:
        require(Role.INVESTIGATE)
        identity = service().start(new, key=next_key(key))
    except FirstfaultError as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    spend_key(key)
    room.empty()
    open_incident(identity)


def _show_folder(room: DeltaGenerator) -> None:
    with st.popover("Whole folder", icon=":material/folder_open:", type="tertiary"):
        files = st.file_uploader(
            "Per-rank logs, dmesg, nvidia-smi, flight-recorder dumps: one folder is one incident",
            accept_multiple_files="directory",
            key="folder",
        )
        if files and st.button(f"Read {len(files)} files", type="primary", key="folder-read"):
            begin(
                NewIncident(tuple(Upload(f.name, f.getvalue()) for f in files)),
                key="folder",
                room=room,
            )


def _show_paths(room: DeltaGenerator) -> None:
    if not may_name_paths():
        return
    with st.popover("Path on this machine", icon=":material/terminal:", type="tertiary"):
        text = st.text_area(
            "Files or folders, one a line. Large files are read where they lie, without an upload.",
            placeholder="/scratch/run-17/logs",
            key="paths",
        )
        if st.button("Read paths", type="primary", key="paths-read"):
            paths = read_paths(text)
            if not paths:
                st.warning("Give absolute paths, one a line.", icon=":material/warning:")
            elif refused := _refuse_paths(paths):
                st.warning(plain(refused), icon=":material/warning:")
            else:
                begin(NewIncident(tuple(NamedPath(p) for p in paths)), key="paths", room=room)


def may_name_paths() -> bool:
    """Visitors may name files of this machine: where nobody signs in, or below the given roots."""
    settings = service().settings
    return settings.allow_paths and (mode() is Mode.LOCAL or bool(read_roots(settings.path_roots)))


def _refuse_paths(paths: Sequence[Path]) -> str:
    """Why these paths cannot be read; '' where they can. Outside the roots nothing is told of them."""
    settings = service().settings
    roots = read_roots(settings.path_roots)
    for path in paths:
        if (roots or mode() is not Mode.LOCAL) and (
            why := refuse_outside(path, roots, "FIRSTFAULT_PATH_ROOTS")
        ):
            return f"{path}: {why}"
        if why := refuse_place(path, settings):
            return f"{path}: {why}"
        if not path.exists():
            return f"Not on this machine: {path}"
    return ""


def _show_examples(room: DeltaGenerator) -> None:
    examples = list_examples()
    if not examples:
        return
    with st.container(key="first-examples"):
        st.html('<p class="ff ff-label">Or open an example incident</p>')
        for row in range(0, len(examples), 2):
            columns = st.columns(2, gap="small")
            for column, example in zip(columns, examples[row : row + 2], strict=False):
                with column:
                    _show_example(example, room)


def _show_example(example: Example, room: DeltaGenerator) -> None:
    if st.button(f"**{example.title}**  \n{example.teaser}", key=f"example-{example.id}"):
        try:
            new = example.read()
        except (OSError, UsageError) as error:
            st.error(plain(f"{example.id}: {error}"), icon=":material/error:")
            return
        begin(new, key=f"example-{example.id}", room=room)
