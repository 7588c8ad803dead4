import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.errors import InvalidParameter, ToolError
from firstfault_tools.memory.configuration import build_run
from firstfault_tools.memory.configuration_files import read_configuration
from firstfault_tools.memory.launch_script import OPEN, list_open, list_words, nest, read_flags
from firstfault_tools.memory.report import report_memory
from firstfault_tools.memory.setup import Precision, Recompute, Sharding

MEGATRON = """#!/bin/bash
TP=${TP:-2}
NODES=4
GPUS=8
WORLD=$((NODES * GPUS / (1 + 1)))
DTYPE="fp8"
# TP=8
MODEL=(
    --num-layers 32   # as published
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention --num-query-groups 8
    --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights
    --position-embedding-type rope --tokenizer-model meta-llama/Meta-Llama-3-8B
)
TRAIN=(--seq-length 8192 --micro-batch-size $MBS --global-batch-size $WORLD --bf16)
if [[ "$DTYPE" == "fp8" ]]; then
    TRAIN+=("--fp8-format hybrid" "--fp8-recipe mxfp8")
else
    TRAIN+=(--recompute-granularity full)
fi
torchrun --nnodes $NODES --nproc_per_node $GPUS pretrain_gpt.py ${MODEL[@]} ${TRAIN[@]} \\
    --tensor-model-parallel-size ${TP} --use-distributed-optimizer
"""
VERL = """
export N=8
MODEL_PATH=${HOME}/models/Qwen/Qwen3-8B
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
    data.train_batch_size=1024 data.max_prompt_length=512 data.max_response_length=1536 \\
    actor_rollout_ref.model.path=$MODEL_PATH \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \\
    actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.actor.fsdp_config.param_offload=True \\
    +actor_rollout_ref.actor.fsdp_config.model_dtype=bf16 \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \\
    actor_rollout_ref.rollout.n=$N \\
    trainer.n_gpus_per_node=8 trainer.nnodes=2 $@
"""
OPENRLHF = """
ARGS="--actor.model_name_or_path Qwen/Qwen3-4B --actor.num_nodes 1 --actor.num_gpus_per_node 8"
ray job submit -- python3 -m openrlhf.cli.train_ppo_ray $ARGS \\
   --train.colocate_all --vllm.num_engines 4 --vllm.tensor_parallel_size 2 --vllm.enable_sleep \\
   --vllm.gpu_memory_utilization 0.5 --data.max_len 4096 --rollout.max_new_tokens 3072 \\
   --rollout.batch_size 128 --rollout.n_samples_per_prompt 8 --train.micro_batch_size 2 \\
   --ds.zero_stage 3 --ds.adam_offload --ds.enable_sleep --actor.gradient_checkpointing_enable
"""
OLD_OPENRLHF = """
python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen3-4B --zero_stage 2 --micro_train_batch_size 8 \\
   --prompt_max_len 1024 --generate_max_len 512 --advantage_estimator reinforce --colocate_all_models
"""


def build(text):
    return build_run(read_configuration(text, "run.sh"))


def test_megatron_script():
    run = build(MEGATRON)
    setup = run.setup
    assert run.shape.parameters == 8030261248
    assert (setup.world, setup.tensor, setup.data, setup.micro_batches) == (32, 2, 16, 1)
    assert setup.precision is Precision.MXFP8
    assert setup.recompute is Recompute.NONE
    assert any("--micro-batch-size" in line for line in run.assumed)
    assert any("that of meta-llama/Meta-Llama-3-8B" in line for line in run.assumed)


def test_verl_overrides():
    run = build(VERL)
    setup, rollout = run.setup, run.rollout
    assert (setup.sequence, setup.micro_batch, setup.world) == (2048, 4, 16)
    assert setup.precision is Precision.BF16
    assert (setup.sharding, setup.recompute) == (Sharding.FSDP, Recompute.FULL)
    assert (rollout.engine, rollout.share, rollout.critic, rollout.reference) == (
        2,
        0.6,
        False,
        True,
    )
    # 1,024 prompts of 8 answers each over 8 engines, of which vLLM runs 256 at once.
    assert rollout.sequences == 256
    assert rollout.moved == {"actor weights"}


@each_row(
    ("text", "sharding", "micro", "critic", "moved"),
    [
        (OPENRLHF, Sharding.ZERO3, 2, True, {"actor weights", "actor optimizer"}),
        (OLD_OPENRLHF, Sharding.ZERO2, 8, False, set()),
    ],
)
def test_openrlhf_flags_old_and_new(text, sharding, micro, critic, moved):
    run = build(text)
    assert run.shape.family == "qwen3"
    assert (run.setup.sharding, run.setup.micro_batch) == (sharding, micro)
    assert (run.rollout.critic, run.rollout.moved) == (critic, moved)


def test_phases_stand_side_by_side():
    from firstfault_tools.memory.cards import find_card

    card = find_card("H100-80GB")
    answer = report_memory(build(VERL), card)
    phases = answer["rollout_gib"]
    # The engine takes its share of the card, no more and no less.
    engine = phases["rollout"]["engine's weights"] + phases["rollout"]["KV cache"]
    assert engine + phases["rollout"]["prompts being read"] == pytest.approx(
        0.6 * card.total_gib, abs=0.01
    )
    assert "the update decides" in answer["sentence"] or "the rollout decides" in answer["sentence"]
    assert "weights brought back" in phases["scoring"] or phases["scoring"]["reference"] > 0


def test_a_critic_and_an_engine_that_stays_awake_are_part_of_the_need():
    asleep = report_memory(build(OPENRLHF))
    awake = report_memory(build(OPENRLHF.replace("--vllm.enable_sleep", "")))
    cache = awake["rollout_gib"]["rollout"]
    more = cache["engine's weights"] + cache["KV cache"] + cache["prompts being read"]
    grown = awake["allocated_gib"]["expected"] - asleep["allocated_gib"]["expected"]
    assert grown == pytest.approx(more, abs=0.01)


@each_row(
    ("text", "words"),
    [
        ("A=3\ntrain --x $A --y ${B:-4} --z ${C}", {"x": "3", "y": "4"}),
        ("A=3\nA+=4\ntrain --x ${A}", {"x": "3 4"}),
        ('OPTS="--x 1 --y 2"\nbash -c "train $OPTS --z 3"', {"x": "1", "y": "2", "z": "3"}),
        ('if [ -z "$NO" ]; then\nX=1\nelse\nX=2\nfi\ntrain --x $X', {"x": "1"}),
        ("if [ $A -eq 2 ]; then\nX=1\nelse\nX=2\nfi\ntrain --x $X", {"x": "2"}),
        ("N=$((2 * (3 + 1) / 2))\ntrain --x=$N", {"x": "4"}),
        ('A=(--x 1)\nA+=(--y 2)\ntrain "${A[@]}"', {"x": "1", "y": "2"}),
    ],
)
def test_variables_are_followed(text, words):
    assert read_flags(list_words(text)) == words


def test_what_only_the_environment_knows_is_named():
    words = list_words("torchrun train.py --num-layers $LAYERS --seq-length 128 data.path=$DATA")
    assert list_open(words) == ["--num-layers", "data.path"]


def test_overrides_become_a_mapping():
    assert nest(["a.b=1", "+a.c.d=x", "~e=2", "--f=3"]) == {
        "a": {"b": 1, "c": {"d": "x"}},
        "e": 2,
        "f": 3,
    }


def test_a_recipe_of_an_unknown_model_asks_for_its_config():
    with pytest.raises(InvalidParameter, match=r"huggingface\.co/some/model/resolve"):
        build(
            "accelerate launch train.py --model_name_or_path some/model --bf16 True --max_length 512"
        )


@given(st.text(alphabet="A1=$({})[]+-\"' \n\\#:;ifthenels", max_size=200))
def test_any_script_is_read_or_refused(text):
    with contextlib.suppress(ToolError):
        assert OPEN not in "".join(read_flags(list_words(text)).values())
