from __future__ import annotations

from evals.fakes.scripted_model import ScriptedModel, in_order, reply, text_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.app.agent.conftest import MakeQuestion
from tests.rows import each_row

from firstfault.agent.endpoint import Hidden
from firstfault.agent.enrich import enrich, preview
from firstfault.agent.pseudonymise import Veil

EVERYTHING = frozenset(Hidden)
HIDDEN = [
    ("node-17: [rank3] error", "node-17"),
    ("connect to 10.0.3.4:29500 failed", "10.0.3.4"),
    ('  File "/home/alice/proj/train.py", line 3', "alice"),
    ("user=bob started it", "bob"),
    ("carol@gpuserver12:~$ python", "carol"),
    ("on host trainer-a100-07.corp.internal now", "trainer-a100-07"),
    ("ip-10-0-3-4 kernel: NVRM: Xid", "ip-10-0-3-4"),
    ("fe80::1ff:fe23:4567:890a is down", "fe80::1ff"),
    ("write to dave.smith@example.com", "dave.smith"),
    ("saving to /fsx/team-x/llm/checkpoints/step_10", "team-x"),
]
KEPT = [
    "torch.nn.Linear fp16 step100 rank-3 H100-80GB nccl 2.19.3 mlx5_0 cuda12",
    "127.0.0.1:29500",
    '  File "/opt/conda/lib/python3.10/site-packages/torch/nn/modules/module.py", line 1',
    "model-00001-of-00002.safetensors",
    "NCCL_IB_HCA=mlx5",
]


@each_row(("text", "name"), HIDDEN)
def test_names_are_replaced_and_come_back(text: str, name: str) -> None:
    veil = Veil(EVERYTHING)
    sent = veil.hide(text)
    assert name not in sent
    assert veil.restore(sent) == text


@each_row("text", KEPT)
def test_words_of_the_trade_stay(text: str) -> None:
    assert Veil(EVERYTHING).hide(text) == text


def test_placeholders_are_stable_and_survive_a_restart() -> None:
    veil = Veil(EVERYTHING)
    first = veil.hide("node-17: a")
    veil.hide("node-18: b")
    assert veil.hide("node-17: a") == first
    later = Veil(EVERYTHING)
    later.adopt(veil.names)
    assert later.hide("node-19: x node-17") == "<host-3>: x <host-1>"
    assert later.restore("<host-2>") == "node-18"


def test_settings_decide_and_secrets_do_not_ask() -> None:
    veil = Veil(frozenset())
    text = "node-17: user=bob 10.0.0.1 token hf_abcdefghijklmnopqrstuvwxyz"
    assert veil.hide(text) == "node-17: user=bob 10.0.0.1 token <redacted:huggingface_token>"
    assert veil.restore("<host-1>") == "<host-1>"


def test_a_placeholder_in_a_log_names_nobody() -> None:
    veil = Veil(EVERYTHING)
    sent = veil.hide("node-17: says <host-1>")
    assert sent == "<host-2>: says <host-1>"


@settings(deadline=None)
@given(st.text(max_size=300))
def test_hiding_never_fails(text: str) -> None:
    veil = Veil(EVERYTHING)
    veil.restore(veil.hide(text))


def test_nothing_hidden_reaches_the_model_and_the_answer_has_real_names(ask: MakeQuestion) -> None:
    def script(messages, _tools):  # type: ignore[no-untyped-def]
        text = text_of(messages)
        line = next(x for x in text.split("\n") if "contact" in x)
        identity = f"F1:{line.split()[0]}"
        host = line.split("host ")[1].split()[0]
        return reply(
            answer=[{"text": f"Rank 0 names host {host} as contact.", "lines": [identity]}]
        )  # fmt: skip

    model = ScriptedModel(script)
    question = ask()
    enriched = enrich(question, model)
    assert "Rank 0 names host trainnode-0042 as contact [" in enriched.text
    sent = text_of([m for p in model.seen for m in p])
    for name in ("trainnode-0042", "10.1.2.3", "alice"):
        assert name not in sent


def test_the_preview_is_what_is_sent(ask: MakeQuestion) -> None:
    model = ScriptedModel(in_order(reply()))
    shown = preview(ask(long=True), model)
    enrich(ask(long=True), model)
    assert model.seen[0][0].content == shown.system
    assert model.seen[0][1].content == shown.message
    assert "grep" in shown.tools
    assert shown.hidden["host"] >= 1
