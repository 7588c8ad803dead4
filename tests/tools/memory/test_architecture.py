import json
from pathlib import Path

import pytest
from tests.rows import each_row

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.memory.architecture import Architecture
from firstfault_tools.memory.configuration import build_run
from firstfault_tools.memory.configuration_huggingface import read_huggingface
from firstfault_tools.memory.models import find_model, find_named, list_models
from firstfault_tools.memory.tally import tally

ROOT = Path(__file__).resolve().parents[3]


CONFIGS = [
    json.loads(line) for line in (ROOT / "evals/truth/model_configs.jsonl").read_text().splitlines()
]


def count_published(shape, row):
    """What a published file holds: the model, its prediction layers and copies, and buffers."""
    count = shape.parameters + row.get("buffers", 0)
    count += shape.prediction_parameters * row.get("with_prediction", False)
    return count + row.get("copied_tables", 0) * shape.vocab * shape.hidden


@each_row("name", list_models())
def test_parameters_are_exact(name):
    """Against the count of the published weights; where no integer is public, against the page's figure."""
    entry = list_models()[name]
    assert entry["source"].startswith("https://huggingface.co/")
    found = count_published(build_run(find_model(name)).shape, entry)
    if "card" in entry:
        assert found == pytest.approx(float(entry["card"].removesuffix("B")) * 1e9, rel=0.005)
        return
    assert entry["counted"].startswith("https://")
    assert found == entry["parameters"]


@each_row(
    ("written", "known"),
    [
        ("Qwen/Qwen2.5-Coder-14B-Instruct", "qwen2.5-14b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("nvidia/Qwen3-30B-A3B-NVFP4", "qwen3-30b-a3b"),
        ("deepseek-ai/DeepSeek-V3-0324-BF16", "deepseek-v3"),
        ("zai-org/GLM-4.7", "glm-4.5"),
        ("TinyLlama/TinyLlama_v1.1", None),
    ],
)
def test_names_of_the_hub(written, known):
    if known is None:
        with pytest.raises(InvalidParameter, match=r"config\.json"):
            find_model(written)
    else:
        assert find_model(written) == find_model(known)


@each_row("row", CONFIGS, ids=[f"{row['name']} {row['published']}" for row in CONFIGS])
def test_real_configurations_count_as_published(row):
    assert row["config_source"].startswith("https://github.com/")
    assert row["count_source"].startswith("https://")
    shape = build_run(read_huggingface(row["config"])).shape
    assert count_published(shape, row) == row["published"]


def test_forty_real_configurations_of_many_families():
    assert len({row["name"] for row in CONFIGS}) >= 40
    kinds = {row["config"].get("model_type", row["config"].get("_class_name")) for row in CONFIGS}
    assert len(kinds) >= 20


MODULES = [
    json.loads(line)
    for line in Path(__file__).with_name("module_counts.jsonl").read_text().splitlines()
]


@each_row("row", MODULES, ids=[row["family"] for row in MODULES])
def test_families_count_like_their_modules(row):
    """Counts of the modules themselves, built without weights from these fields."""
    assert build_run(read_huggingface(row["config"])).shape.parameters == row["parameters"]


def test_layers_from_architecture_search():
    """Own heads and widths a layer, a linear layer or nothing in place of attention."""
    config = {
        "model_type": "nemotron-nas", "hidden_size": 8192, "num_attention_heads": 64, "vocab_size": 128256,
        "tie_word_embeddings": False,
        "block_configs": [
            {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 5.25}},
            {"attention": {"no_op": True}, "ffn": {"ffn_mult": 0.5}},
            {"attention": {"replace_with_linear": True}, "ffn": {"no_op": True}},
        ],
    }  # fmt: skip
    h, attention = 8192, 2 * 8192 * 8192 + 2 * 8192 * 8 * 128
    widths = 28672 + 2816
    whole = 2 * 128256 * h + attention + 3 * h * widths + h * h + h + 4 * h
    shape = build_run(read_huggingface(config)).shape
    assert (shape.parameters, shape.layers) == (whole, 3)
    assert shape.partial


@each_row(
    ("change", "field"),
    [({"linear_num_key_heads": None}, "linear_num_key_heads"), ({"head_dim": 1.5}, "head_dim"),
     ({"num_hidden_layers": 10**9}, "count"), ({"vocab_size": "many"}, "vocab_size")],
)  # fmt: skip
def test_a_broken_field_of_a_table_is_named(change, field):
    row = next(row for row in CONFIGS if row["config"].get("model_type") == "qwen3_5")
    with pytest.raises(InvalidParameter, match=field):
        tally("qwen3_5_text", {**row["config"]["text_config"], **change})


SMALL = {
    "hidden_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8,
    "intermediate_size": 1408, "vocab_size": 1000,
}  # fmt: skip
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}


@each_row(
    ("family", "config", "parameters"),
    [
        ("gemma", {**SMALL, "num_key_value_heads": 2, "head_dim": 64}, 8969728),
        ("phi3", {**SMALL, "num_key_value_heads": 2}, 9481728),
        ("gpt_neox", SMALL, 8514176),
        ("starcoder2", {**SMALL, "num_key_value_heads": 2}, 6820224),
        ("nemotron", {**SMALL, "num_key_value_heads": 2}, 7322624),
        ("qwen3", {**SMALL, "num_key_value_heads": 2, "head_dim": 64}, 9482112),
        ("smollm3", {**SMALL, "num_key_value_heads": 2}, 8969728),
        (
            "qwen2_moe",
            {**SMALL, **EXPERTS, "num_key_value_heads": 2, "shared_expert_intermediate_size": 512},
            14806272,
        ),
        ("qwen3_moe", {**SMALL, **EXPERTS, "num_key_value_heads": 2, "head_dim": 64}, 12443520),
        (
            "opt",
            {"hidden_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8,
             "ffn_dim": 2048, "vocab_size": 1000, "max_position_embeddings": 2048},
            11019776,
        ),
    ],
)  # fmt: skip
def test_every_family_counts_like_its_own_code(family, config, parameters):
    """Counts taken from the modules themselves, built on the meta device."""
    shape = build_run(read_huggingface({**config, "model_type": family})).shape
    assert shape.parameters == parameters


def test_grouped_heads_and_gated_mlp_are_read():
    """72 billion parameters, where a tool that skips them says 56."""
    config = {
        "model_type": "qwen2", "hidden_size": 8192, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 29568,
        "vocab_size": 152064, "tie_word_embeddings": False,
    }  # fmt: skip
    assert build_run(read_huggingface(config)).shape.parameters == 72706203648


def test_tied_embeddings_count_once():
    sizes = {"hidden": 64, "layers": 2, "heads": 4, "ffn": 128, "vocab": 1000}
    untied, tied = Architecture(**sizes), Architecture(**sizes, tied=True)
    assert untied.parameters - tied.parameters == 64 * 1000


def test_active_parameters_of_experts():
    shape = build_run(find_model("mixtral-8x7b")).shape
    assert shape.active_parameters == pytest.approx(12.88e9, rel=0.001)


@each_row(
    ("field", "change"),
    [
        ("hidden", {"hidden": 0}),
        ("hidden", {"hidden": -4}),
        ("kv_heads", {"kv_heads": 3}),
        ("heads", {"heads": 7}),
        ("ffn", {"ffn": -1}),
        ("experts_per_token", {"experts": 4, "experts_per_token": 5}),
        ("dense_layers", {"dense_layers": 3}),
        ("layers", {"layers": 10**9}),
    ],
)
def test_bad_shapes_name_the_field(field, change):
    sizes = {"hidden": 64, "layers": 2, "heads": 4, "ffn": 128, "vocab": 1000}
    with pytest.raises(InvalidParameter) as caught:
        Architecture(**{**sizes, **change})
    assert caught.value.field == field


def test_known_models():
    known = [entry["parameters"] for entry in list_models().values() if entry.get("parameters")]
    assert len(known) >= 100


@each_row(
    ("question", "named"),
    [
        ("qwen3-32b fsdp on 16 h100", "qwen3-32b"),
        ("gemma 3 27b qlora on 24GB?", "gemma-3-27b"),
        ("does llama3 8B fit", "llama-3-8b"),
        ("Kimi K2 on 256 h200", "kimi-k2"),
        ("deepseek v3.2 or something", "deepseek-v3.2"),
        ("flux lora on a 4090", "flux.1-dev"),
        ("how long is a piece of string", None),
    ],
)
def test_models_in_questions(question, named):
    assert find_named(question) == named
