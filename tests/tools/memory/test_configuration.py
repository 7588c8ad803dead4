import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.errors import InvalidParameter, ToolError, UnreadableArtefact
from firstfault_tools.memory.configuration import Draft, build_run
from firstfault_tools.memory.configuration_files import read_configuration
from firstfault_tools.memory.configuration_huggingface import read_optimizer
from firstfault_tools.memory.configuration_megatron import (
    read_megatron_dump,
)
from firstfault_tools.memory.models import find_model
from firstfault_tools.memory.report import report_memory, split_fields
from firstfault_tools.memory.setup import (
    Attention,
    Framework,
    Precision,
    Recompute,
    Sharding,
)

LLAMA = Draft(
    {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256}
)
COMMAND = """
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py \\
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 14336 \\
  --group-query-attention --num-query-groups 8 --seq-length 8192 --max-position-embeddings 8192 \\
  --position-embedding-type rope --swiglu --normalization RMSNorm --disable-bias-linear \\
  --untie-embeddings-and-output-weights --vocab-size 128256 --make-vocab-size-divisible-by 128 \\
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --sequence-parallel \\
  --num-layers-per-virtual-pipeline-stage 4 --context-parallel-size 2 --micro-batch-size 2 \\
  --global-batch-size 64 --bf16 --use-distributed-optimizer --recompute-activations \\
  --hidden-dropout 0.0 --attention-backend flash
"""


def test_megatron_command_line():
    run = build_run(read_configuration(COMMAND, "run.sh"))
    assert run.shape.parameters == 8030261248
    setup = run.setup
    assert (setup.tensor, setup.pipeline, setup.virtual, setup.context) == (2, 4, 2, 2)
    assert (setup.world, setup.data, setup.micro_batches) == (32, 2, 16)
    assert setup.recompute is Recompute.SELECTIVE
    assert setup.framework is Framework.MEGATRON
    assert setup.distributed_optimizer
    assert setup.sequence_parallel
    assert not setup.dropout
    assert setup.pad_vocab == 128256


def dump(**arguments):
    lines = [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in arguments.items()]
    start = "------------------------ arguments ------------------------"
    end = "-------------------- end of arguments ---------------------"
    return "\n".join(["using world size: 64", start, *lines, end, "  seq_length ..... 1"])


FULL_DUMP = {
    "hidden_size": 4096, "num_layers": 32, "num_attention_heads": 32, "ffn_hidden_size": 16384,
    "group_query_attention": True, "num_query_groups": 8, "seq_length": 8192, "swiglu": False,
    "max_position_embeddings": 8192, "position_embedding_type": "learned_absolute",
    "padded_vocab_size": 131584, "vocab_size": None, "micro_batch_size": 2,
    "tensor_model_parallel_size": 4, "pipeline_model_parallel_size": 1, "world_size": 8,
    "global_batch_size": 8, "bf16": True, "fp16": False, "use_distributed_optimizer": True,
    "hidden_dropout": 0.1, "sequence_parallel": False, "normalization": "LayerNorm",
    "untie_embeddings_and_output_weights": True, "add_bias_linear": True, "num_experts": None,
    "recompute_granularity": None, "context_parallel_size": 1, "data_parallel_size": 2,
    "recompute_modules": "['core_attn']", "virtual_pipeline_model_parallel_size": None,
}  # fmt: skip


@each_row("prefix", ["", "[rank0]: ", "0: "])
def test_argument_dump_of_a_log(prefix):
    text = "\n".join(prefix + line for line in dump(**FULL_DUMP).splitlines())
    run = build_run(read_configuration(text, "train.log"))
    assert run.setup.sequence == 8192
    assert run.setup.pad_vocab == 131584
    assert run.setup.dropout
    assert run.shape.positions == 8192
    assert run.shape.kv_heads == 8
    assert run.setup.data == 2
    assert run.setup.micro_batches == 2


@each_row(
    ("change", "field", "value"),
    [
        ({"fp16": True, "bf16": False}, "precision", Precision.FP16),
        ({"fp8": "hybrid"}, "precision", Precision.FP8),
        ({"bf16": False}, "precision", Precision.FP32),
        ({"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 4},
         "recompute_layers", 4),
        ({"recompute_granularity": "full"}, "recompute", Recompute.FULL),
        ({"attention_backend": "AttnBackend.unfused"}, "attention", Attention.EAGER),
        ({"optimizer": "sgd"}, "optimizer", "sgd"),
        ({"cross_entropy_loss_fusion": True}, "loss_fused", True),
        ({"accumulate_allreduce_grads_in_fp32": False}, "gradient_bytes", 2),
        ({"use_precision_aware_optimizer": True, "exp_avg_dtype": "torch.bfloat16",
          "exp_avg_sq_dtype": "torch.bfloat16"}, "moment_bytes", 2.0),
    ],
)  # fmt: skip
def test_single_arguments(change, field, value):
    draft = read_megatron_dump(dump(**{**FULL_DUMP, **change}))
    assert getattr(build_run(draft).setup, field) == value


def test_moe_arguments():
    draft = read_megatron_dump(
        dump(**{**FULL_DUMP, "num_experts": 8, "moe_router_topk": 2, "swiglu": True,
                "expert_model_parallel_size": 2})
    )  # fmt: skip
    run = build_run(draft)
    assert (run.shape.experts, run.shape.experts_per_token, run.setup.expert) == (8, 2, 2)


def test_default_width_of_swiglu():
    found = {**FULL_DUMP, "swiglu": True}
    del found["ffn_hidden_size"]
    assert build_run(read_megatron_dump(dump(**found))).shape.ffn == 10880


def test_layers_that_do_not_divide_name_the_argument():
    text = COMMAND.replace("virtual-pipeline-stage 4", "virtual-pipeline-stage 3")
    with pytest.raises(InvalidParameter, match="num_layers_per_virtual_pipeline_stage"):
        read_configuration(text, "run.sh")


DEEPSPEED = {
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
    "bf16": {"enabled": True}, "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
}  # fmt: skip


@each_row(
    ("stage", "sharding"),
    [(0, Sharding.DDP), (1, Sharding.ZERO1), (2, Sharding.ZERO2), (3, Sharding.ZERO3)],
)
def test_deepspeed(stage, sharding):
    config = {**DEEPSPEED, "zero_optimization": {"stage": stage}}
    draft = LLAMA.merge(read_configuration(json.dumps(config), "ds.json"))
    setup = build_run(draft.merge(split_fields({"world": 8, "sequence": 2048}))).setup
    assert setup.sharding is sharding
    assert setup.framework is Framework.DEEPSPEED
    assert (setup.micro_batch, setup.micro_batches) == (4, 2)
    assert setup.precision is Precision.BF16


def test_deepspeed_auto_and_offload():
    config = {
        "train_micro_batch_size_per_gpu": "auto",
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
    }
    draft = LLAMA.merge(read_configuration(json.dumps(config), "ds.json"))
    run = build_run(draft)
    assert run.setup.offload_optimizer
    assert any(line.startswith("micro-batch 1:") for line in run.assumed)


def test_deepspeed_bad_stage():
    with pytest.raises(InvalidParameter, match=r"zero_optimization\.stage"):
        read_configuration('{"zero_optimization": {"stage": 7}}', "ds.json")


TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
[parallelism]
data_parallel_shard_degree = 8
tensor_parallel_degree = 1
[activation_checkpoint]
mode = "full"
[compile]
enable = true
"""


def test_torchtitan():
    run = build_run(read_configuration(TITAN, "llama3_8b.toml"))
    assert run.shape.parameters == 8030261248
    assert run.setup.sharding is Sharding.FSDP
    assert run.setup.recompute is Recompute.FULL
    assert run.setup.world == 8
    assert run.setup.compiled


ACCELERATE = """
distributed_type: FSDP
mixed_precision: bf16
num_processes: 4
fsdp_config:
  fsdp_sharding_strategy: {strategy}
  fsdp_activation_checkpointing: true
"""


@each_row(
    ("strategy", "sharding"),
    [("FULL_SHARD", Sharding.FSDP), ("SHARD_GRAD_OP", Sharding.ZERO2), ("NO_SHARD", Sharding.DDP)],
)
def test_accelerate_fsdp(strategy, sharding):
    draft = LLAMA.merge(read_configuration(ACCELERATE.format(strategy=strategy), "a.yaml"))
    setup = build_run(draft).setup
    assert setup.sharding is sharding
    assert setup.precision is Precision.AMP
    assert setup.recompute is Recompute.FULL
    assert setup.world == 4


def test_accelerate_deepspeed():
    text = (
        "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\n"
        "deepspeed_config:\n  zero_stage: 3\n  gradient_accumulation_steps: 4\n"
    )
    setup = build_run(LLAMA.merge(read_configuration(text, "a.yaml"))).setup
    assert setup.sharding is Sharding.ZERO3
    assert setup.micro_batches == 4


ARGUMENTS = """TrainingArguments(
_n_gpu=1,
bf16=True,
gradient_accumulation_steps=8,
gradient_checkpointing=True,
optim=OptimizerNames.ADAMW_TORCH_FUSED,
per_device_train_batch_size=2,
fsdp=[],
)"""


def test_training_arguments():
    setup = build_run(find_model("qwen2.5-0.5b").merge(read_configuration(ARGUMENTS, "log"))).setup
    assert setup.precision is Precision.AMP
    assert setup.recompute is Recompute.FULL
    assert (setup.micro_batch, setup.micro_batches) == (2, 8)
    assert setup.optimizer == "adamw_fused"


def test_nemo():
    text = json.dumps(
        {"trainer": {"precision": "bf16", "num_nodes": 2, "devices": 8},
         "model": {"hidden_size": 4096, "num_layers": 32, "num_attention_heads": 32,
                   "ffn_hidden_size": 14336, "num_query_groups": 8, "activation": "swiglu",
                   "normalization": "rmsnorm", "encoder_seq_length": 4096, "micro_batch_size": 1,
                   "tensor_model_parallel_size": 4, "position_embedding_type": "rope",
                   "bias": False, "share_embeddings_and_output_weights": False,
                   "optim": {"name": "distributed_fused_adam"}}}
    )  # fmt: skip
    draft = read_configuration("# NeMo\n" + yaml.safe_dump(json.loads(text)), "x.yaml")
    run = build_run(draft.merge(split_fields({"vocab": 128256})))
    assert run.setup.world == 16
    assert run.setup.distributed_optimizer
    assert run.shape.kv_heads == 8
    assert run.shape.gated


def test_later_sources_and_flags_win():
    draft = find_model("llama-3-8b").merge(split_fields({"layers": 16, "sequence": 1024}))
    run = build_run(draft)
    assert (run.shape.layers, run.setup.sequence) == (16, 1024)


@each_row(
    ("name", "ours"),
    [
        ("OptimizerNames.ADAMW_TORCH_FUSED", "adamw_fused"), ("adamw_torch", "adamw_foreach"),
        ("AdamW", "adamw_foreach"), ("adamw_bnb_8bit", "adamw_8bit"), ("paged_adamw_8bit",
                                                                       "paged_adamw_8bit"),
        ("adafactor", "adafactor"), ("sgd", "sgd"), ("lion_32bit", "lion"), ("muon", "muon"),
    ],
)  # fmt: skip
def test_optimizer_names(name, ours):
    assert read_optimizer(name.rsplit(".", 1)[-1]) == ours


@each_row(
    ("text", "name"),
    [
        ("{", "config.json"),
        ("[1]", "x.json"),
        ("a: [", "x.yaml"),
        ("just: words\n", "x.yaml"),
        ("x = ", "x.toml"),
        ("hello", "notes.txt"),
        ("!!python/object/apply:os.system ['true']", "x.yaml"),
    ],
)
def test_unreadable_configurations(text, name):
    with pytest.raises(UnreadableArtefact):
        read_configuration(text, name)


@each_row(
    ("fields", "named"),
    [
        ({"colour": 1}, "colour"),
        ({"hidden": 64}, "layers"),
        ({"hidden": 64, "layers": 2, "heads": 4, "vocab": 100, "precision": "int1"}, "precision"),
        ({"hidden": 64, "layers": 2, "heads": 5, "vocab": 100}, "heads"),
    ],
)
def test_bad_fields_are_named(fields, named):
    with pytest.raises(InvalidParameter) as caught:
        build_run(split_fields(fields))
    assert caught.value.field == named


def test_what_was_assumed_is_said():
    run = build_run(read_configuration('{"model_type": "newcomer", "hidden_size": 64, '
                                       '"num_hidden_layers": 2, "num_attention_heads": 4, '
                                       '"vocab_size": 100}', "config.json"))  # fmt: skip
    text = " ".join(run.assumed)
    assert "newcomer" in text
    assert "MLP width" in text
    assert "sequence length" in text


@given(st.text(max_size=200), st.sampled_from(["a.json", "a.yaml", "a.toml", "a.log", "a"]))
def test_any_text_is_read_or_refused(text, name):
    try:
        build_run(read_configuration(text, name))
    except ToolError:
        return


@given(st.dictionaries(st.sampled_from(["hidden_size", "num_hidden_layers", "vocab_size",
                                        "num_attention_heads", "zero_optimization", "bf16",
                                        "kv_lora_rank", "text_config", "model_type"]),
                       st.one_of(st.none(), st.integers(-5, 10**13), st.text(max_size=5),
                                 st.booleans(), st.lists(st.integers(), max_size=2)), max_size=6))  # fmt: skip
def test_any_json_object_is_read_or_refused(config):
    try:
        build_run(read_configuration(json.dumps(config), "config.json"))
    except ToolError:
        return


AXOLOTL = """
base_model: Qwen/Qwen3-8B
sequence_len: 4096
micro_batch_size: 2
bf16: true
optimizer: adamw_torch_4bit
attn_implementation: flash_attention_2
gradient_checkpointing: offload
plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]
fsdp_version: 2
fsdp_config: {offload_params: true, reshard_after_forward: true}
dp_shard_size: 2
context_parallel_size: 2
"""


def test_axolotl_with_a_mesh():
    run = build_run(read_configuration(AXOLOTL, "recipe.yaml"))
    setup = run.setup
    assert (setup.world, setup.context, setup.sharding) == (4, 2, Sharding.FSDP)
    assert (setup.loss_fused, setup.activation_offload, setup.optimizer) == (
        True,
        True,
        "adamw_4bit",
    )
    assert (setup.offload_optimizer, setup.offload_parameters) == (True, True)
    assert setup.attention is Attention.FLASH


@each_row(
    ("text", "micro", "reference"),
    [
        ("base_model: Qwen/Qwen3-8B\nrl: dpo\nmicro_batch_size: 2", 4, True),
        ("base_model: Qwen/Qwen3-8B\nrl: dpo\nadapter: lora\nmicro_batch_size: 2", 4, False),
        ("base_model: Qwen/Qwen3-8B\nrl: orpo\nmicro_batch_size: 1", 2, False),
        ("model_name_or_path: Qwen/Qwen3-8B\nstage: dpo\nfinetuning_type: full\n"
         "per_device_train_batch_size: 1", 2, True),
    ],
)  # fmt: skip
def test_preference_losses_hold_pairs_and_a_reference(text, micro, reference):
    run = build_run(read_configuration(text, "recipe.yaml"))
    assert (run.setup.micro_batch, run.reference) == (micro, reference)
    terms = report_memory(run, changes=False)["terms_gib"]
    assert ("reference" in terms) is reference


def test_states_split_over_nothing_named_take_a_node():
    run = build_run(find_model("qwen3-8b").merge(Draft({}, {"sharding": "fsdp"})))
    assert run.setup.world == 8
    assert any("--world" in line for line in run.assumed)
