"""Which model is connected, what may it do and why? Connect one, test it, let it sit the exam."""

from __future__ import annotations

import secrets

import streamlit as st

from firstfault.access import Role
from firstfault.agent.connecting import (
    connected,
    forget_key,
    has_keyring,
    keep_key,
    list_models,
    read_kept_key,
    with_model,
)
from firstfault.agent.endpoint import PUBLIC_URL, Endpoint, read_endpoint
from firstfault.agent.exam.running import ExamRun
from firstfault.agent.exam.standing import read_standing
from firstfault.agent.health import check_endpoint
from firstfault.agent.model import EndpointModel
from firstfault.errors import FirstfaultError
from firstfault.ui.door import service
from firstfault.ui.marks import plain
from firstfault.ui.visitor import may, require

_OPEN, _NAMES = "model-open", "model-names"
SAID = {True: ":material/check_circle:", False: ":material/error:", None: ":material/help:"}


@st.cache_resource(show_spinner=False)
def _exams() -> dict[tuple[str, str], ExamRun]:
    """Exams of this process by address and name of the model."""
    return {}


def show_model_button() -> None:
    """The way to the dialog, for those who may decide where logs go."""
    if not may(Role.APPROVE):
        return
    endpoint = read_endpoint(service().settings)
    name = f"Model: {endpoint.name}" if endpoint is not None else "Connect a model"
    st.button(
        plain(name), icon=":material/neurology:", key="model", width="stretch", on_click=_open
    )
    if st.session_state.get(_OPEN):
        _show_dialog()


def _open() -> None:
    st.session_state[_OPEN] = True


def _close() -> None:
    st.session_state[_OPEN] = False


@st.dialog("The model beside the tools", width="large", on_dismiss=_close)
def _show_dialog() -> None:
    settings = service().settings
    endpoint = read_endpoint(settings)
    if endpoint is None:
        st.write(
            "No model is connected. Firstfault needs none; with one it also reads and reasons."
        )
    else:
        _show_standing(endpoint)
    url = st.text_input(
        "Address", settings.model_url or PUBLIC_URL, key="model-url",
        help="Any OpenAI-compatible server, mostly ending in /v1: OpenAI, vLLM, Ollama, llama.cpp.",
    )  # fmt: skip
    key = st.text_input(
        "Key", type="password", key="model-key",
        help="Stays in the memory of this page and its workers, never in the database. Servers of your own may need none.",
    )  # fmt: skip
    keep = has_keyring() and st.checkbox("Keep the key in this system's keyring", key="model-keep")
    if has_keyring() and read_kept_key(url):
        st.button("Forget the key kept for this address", key="model-forget", on_click=_forget, args=(url,))  # fmt: skip
    if st.button("List its models", icon=":material/list:", key="model-list"):
        _list(url, key)
    found: tuple[str, list[str]] = st.session_state.get(_NAMES, ("", []))
    names = found[1] if found[0] == url else []
    name = st.selectbox(
        "Model", names, index=0 if names else None, key="model-name", accept_new_options=True,
        placeholder="From the list of the server, or type its name",
    )  # fmt: skip
    if st.button("Connect", type="primary", key="model-connect", disabled=not name):
        _connect(url, str(name), key, keep)
    if endpoint is not None:
        _show_test(endpoint)
        _show_exam(endpoint)


def _show_standing(endpoint: Endpoint) -> None:
    standing = read_standing(service().settings, endpoint)
    st.write(plain(f"{endpoint.name} at {endpoint.url}"))
    may_lead = "It may lead." if standing.passed else "It may not lead."
    st.write(plain(f"{may_lead} {standing.why}"))
    if endpoint.needs_consent:
        st.caption("In an incident nothing is sent before somebody replied /send.")


def _forget(url: str) -> None:
    try:
        require(Role.APPROVE)
        forget_key(url)
    except FirstfaultError as error:
        st.error(plain(str(error)), icon=":material/error:")


def _list(url: str, key: str) -> None:
    try:
        require(Role.APPROVE)
        names = list_models(service().settings, url, key)
    except FirstfaultError as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    st.session_state[_NAMES] = (url, list(names))
    st.caption(
        f"{len(names)} model(s) listed." if names else "The server lists none; type the name."
    )


def _connect(url: str, name: str, key: str, keep: bool) -> None:
    try:
        require(Role.APPROVE)
        settings = with_model(service().settings, url, name, key)
        if keep and key:
            keep_key(settings.model_url, key)
        service().connect_model(settings)
        connected(settings)
    except FirstfaultError as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    st.rerun()


def _show_test(endpoint: Endpoint) -> None:
    if not st.button("Test it", icon=":material/network_check:", key="model-test"):
        return
    with st.spinner("Asking it a few words of no incident"):
        checks = list(check_endpoint(endpoint))
    for check in checks:
        advice = f" {check.advice}" if check.advice else ""
        st.write(f"{SAID[check.ok]} " + plain(f"{check.name}: {check.detail}{advice}"))


def _show_exam(endpoint: Endpoint) -> None:
    exams, place = _exams(), (endpoint.url, endpoint.name)
    run = exams.get(place)
    busy = run is not None and run.is_running
    if st.button("Let it sit the exam", icon=":material/school:", key="model-exam", disabled=busy):
        try:
            require(Role.APPROVE)
        except FirstfaultError as error:
            st.error(plain(str(error)), icon=":material/error:")
            return
        seed = 1 + secrets.randbelow(1_000_000)
        knowledge = service().workspace.knowledge
        run = exams[place] = ExamRun(service().settings, EndpointModel(endpoint), knowledge, seed)
        run.start()
    if run is not None:
        _follow_exam(run)


@st.fragment(run_every=3)
def _follow_exam(run: ExamRun) -> None:
    if run.is_running:
        st.progress(len(run.grades) / run.count, f"{len(run.grades)} of {run.count} incidents")
        st.button("Stop the exam", key="model-exam-stop", on_click=run.stop)
    elif run.standing is not None:
        st.write(plain(run.standing.why))
    else:
        st.error(plain(f"Not kept: {run.problem or 'it broke off'}"), icon=":material/error:")
