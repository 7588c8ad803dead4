"""NeMo 1 and 2 and Megatron Bridge: YAML, Python recipes, the command line."""

import pytest
from tests.rows import each_row

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.memory.configuration import Draft, build_run
from firstfault_tools.memory.configuration_files import read_configuration
from firstfault_tools.memory.configuration_nemo import find_sizes
from firstfault_tools.memory.verdict import estimate_step

SCRIPT = """
from nemo.collections import llm
recipe = llm.llama3_8b.pretrain_recipe(dir="/x", name="run", num_nodes=2, num_gpus_per_node=8)
recipe.trainer.strategy.tensor_model_parallel_size = 2
recipe.data.micro_batch_size = 2  # half of what fits
recipe.data.global_batch_size = batch
"""
YAML = """
_target_: nemo.collections.llm.api.pretrain
model:
  _target_: nemo.collections.llm.gpt.model.llama.LlamaModel
  config: {_target_: nemo.collections.llm.gpt.model.llama.Llama31Config8B, seq_length: 8192, num_layers: 16}
trainer:
  devices: 8
  num_nodes: 2
  plugins: {_target_: x.MegatronMixedPrecision, precision: bf16-mixed}
  strategy: {_target_: x.MegatronStrategy, tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2}
data: {_target_: x.MockDataModule, micro_batch_size: 1, global_batch_size: 128}
"""
BRIDGE = """
model:
  _target_: megatron.bridge.models.llama.llama_provider.LlamaModelProvider
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 14336
  num_attention_heads: 32
  num_query_groups: 8
  vocab_size: 128256
  gated_linear_unit: true
  normalization: RMSNorm
  add_bias_linear: false
  share_embeddings_and_output_weights: false
  tensor_model_parallel_size: 2
  seq_length: 4096
train: {micro_batch_size: 1, global_batch_size: 64}
mixed_precision: bf16_mixed
"""


def read(text, name):
    return build_run(read_configuration(text, name))


def test_a_script_changes_its_recipe():
    run = read(SCRIPT, "pretrain.py")
    setup = run.setup
    assert run.shape.parameters == 8_030_261_248
    # Of the recipe: context parallelism 2 and 8,192 tokens; of the script: the rest.
    assert (setup.world, setup.tensor, setup.context, setup.micro_batch) == (16, 2, 2, 2)
    assert setup.sequence == 8192
    assert setup.distributed_optimizer
    assert any("data.global_batch_size" in line for line in run.assumed)
    assert any("llama3_8b" in line for line in run.assumed)


@each_row(
    ("command", "sizes"),
    [
        ('nemo llm pretrain --factory "llama3_70b(num_nodes=8)" data.seq_length=4096', (64, 4, 4, 2, 4096)),
        ("nemo llm pretrain --factory llama31_405b", (576, 8, 9, 4, 8192)),
        ("nemo llm pretrain --factory llama3_8b_16k trainer.devices=4", (4, 1, 1, 2, 16384)),
    ],
)  # fmt: skip
def test_a_command_names_a_recipe(command, sizes):
    setup = read(command, "run.sh").setup
    found = (setup.world, setup.tensor, setup.pipeline, setup.context, setup.sequence)
    assert found == sizes


def test_a_class_of_sizes_and_what_stands_beside_it():
    run = read(YAML, "config.yaml")
    assert run.shape.layers == 16
    assert run.shape.hidden == 4096
    assert (run.setup.world, run.setup.tensor, run.setup.pipeline) == (16, 2, 2)
    assert run.setup.micro_batches == 32


def test_bridge_spells_the_model_out():
    run = read(BRIDGE, "config.yaml")
    assert run.shape.parameters == 8_030_261_248
    assert (run.setup.tensor, run.setup.sequence) == (2, 4096)


@each_row(
    ("name", "known"),
    [
        ("Llama3Config8B", ("llama-3-8b", 0)),
        ("Llama31Config70B", ("llama-3.1-70b", 0)),
        ("MixtralConfig8x7B", ("mixtral-8x7b", 0)),
        ("qwen25_7b", ("qwen2.5-7b", 0)),
        ("mixtral_8x7b_64k", ("mixtral-8x7b", 65536)),
        ("hyena_base", (None, 0)),
    ],
)
def test_names_of_recipes_and_classes(name, known):
    assert find_sizes(name) == known


def test_fine_tuning_adapts_unless_told_not_to():
    script = SCRIPT.replace("pretrain_recipe", "finetune_recipe")
    tuned = read(script, "tune.py")
    assert tuned.setup.lora_rank == 32
    whole = read(script.replace("num_nodes=2", 'num_nodes=2, peft_scheme="none"'), "tune.py")
    assert whole.setup.lora_rank == 0
    terms = estimate_step(tuned.shape, tuned.setup).peak.terms
    assert terms["optimizer"] < estimate_step(whole.shape, whole.setup).peak.terms["optimizer"] / 50


def test_an_unknown_recipe_says_what_is_missing():
    with pytest.raises(InvalidParameter, match="hidden"):
        read("nemo llm pretrain --factory hyena_base", "run.sh")
    assert read_configuration("nemo llm pretrain --factory hyena_base", "run.sh") != Draft()
