import pytest

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.memory.architecture import Architecture
from firstfault_tools.memory.configuration import build_run
from firstfault_tools.memory.configuration_huggingface import read_huggingface
from firstfault_tools.memory.models import find_model, list_models


@pytest.mark.parametrize("name", list_models())
def test_parameters_are_exact(name):
    assert build_run(find_model(name)).shape.parameters == list_models()[name]["parameters"]


SMALL = {
    "hidden_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8,
    "intermediate_size": 1408, "vocab_size": 1000,
}  # fmt: skip
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


def test_latent_attention_is_refused():
    with pytest.raises(InvalidParameter, match="not modelled"):
        read_huggingface({**SMALL, "model_type": "deepseek_v3", "kv_lora_rank": 512})
