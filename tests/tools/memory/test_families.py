"""Real steps of model families against the estimate, partial answers, names, recipes."""

import json
from pathlib import Path

import pytest
from tests.rows import each_row

from firstfault_tools.answers import answer_calculation
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.memory.check import read_row, read_rows, score_rows
from firstfault_tools.memory.configuration import build_run
from firstfault_tools.memory.configuration_files import read_configuration
from firstfault_tools.memory.host import PROCESS, size_host, size_node
from firstfault_tools.memory.models import find_model
from firstfault_tools.memory.report import report_memory
from firstfault_tools.memory.verdict import estimate_step, judge

ROOT = Path(__file__).resolve().parents[3]
ROWS = read_rows((ROOT / "evals/truth/memory_families.jsonl").read_text(), "rows")


def test_no_row_is_refused():
    assert len(ROWS) >= 24
    assert score_rows(ROWS)["rows_failed"] == 0


def test_error_over_all_rows():
    result = score_rows(ROWS)
    assert result["rows_measured"] == len(ROWS)
    assert result["mean_error"] <= 0.0055
    assert result["worst_error"] <= 0.03


def test_every_row_is_spelled_out():
    assert not [row["model"] for row in ROWS if read_row(row).shape.partial]


def test_a_tower_whose_patches_are_not_stated_is_a_range():
    row = next(row for row in ROWS if row.get("image_patches"))
    bare = {key: value for key, value in row.items() if key != "image_patches"}
    run = read_row(bare)
    assert run.shape.partial
    verdict = judge(estimate_step(run.shape, run.setup), run.setup)
    assert verdict.allocated.low <= row["measured"]["peak_allocated"] <= verdict.allocated.high


def test_experts_work_in_the_type_of_their_weights_under_autocast():
    """grouped_mm is not in autocast's list: half-precision experts would be 4 % below what was measured."""
    rows = [row for row in ROWS if row["model"] == "mixtral" and not row.get("experts")]
    assert len(rows) == 3
    assert score_rows(rows)["worst_error"] <= 0.005


def test_phases_of_a_reinforcement_learning_step():
    row = ROWS[28]
    answer = answer_calculation("memory_phases", {
        "model": "llama-3.2-1b", "prompt": row["prompt"], "response": row["seq"] - row["prompt"],
        "rollouts": row["rollouts"], "micro_batch": row["mbs"],
    })  # fmt: skip
    for phase in ("rollout", "scoring", "update"):
        assert answer.result["phases_gib"][phase] == pytest.approx(row["measured"][phase], rel=0.01)


@each_row(
    ("name", "found"),
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", 8030261248),
        ("Qwen/Qwen2.5-7B-Instruct", 7615616512),
        ("google/gemma-2-9b-it", 9241705984),
    ],
)
def test_names_as_people_write_them(name, found):
    assert build_run(find_model(name)).shape.parameters == found


def test_an_unknown_name_asks_for_its_config():
    with pytest.raises(
        InvalidParameter, match=r"huggingface\.co/some/thing/resolve/main/config\.json"
    ):
        find_model("some/thing")


def test_no_sequence_means_an_everyday_length():
    run = build_run(find_model("llama-3.1-8b"))
    assert run.setup.sequence == 4096
    assert any("--sequence" in line for line in run.assumed)


RECIPES = {
    "axolotl.yml": (
        "base_model: NousResearch/Meta-Llama-3-8B\nadapter: qlora\nload_in_4bit: true\nlora_r: 32\n"
        "lora_target_linear: true\nsequence_len: 4096\nmicro_batch_size: 2\noptimizer: paged_adamw_8bit\n"
        "gradient_checkpointing: true\n",
        {"lora_rank": 32, "quantized_bits": 4, "sequence": 4096, "recompute": "full", "optimizer": "paged_adamw_8bit"},
    ),
    "llama_factory.yaml": (
        "model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\nfinetuning_type: lora\nbf16: true\n",
        {"lora_rank": 8, "sequence": 2048, "micro_batch": 8, "recompute": "full", "precision": "bf16"},
    ),
    "trl_grpo.yaml": (
        "model_name_or_path: Qwen/Qwen2.5-7B\nmax_prompt_length: 512\nmax_completion_length: 1024\n"
        "num_generations: 8\nper_device_train_batch_size: 4\nuse_peft: true\nload_in_4bit: true\ndtype: bfloat16\n",
        {"sequence": 1536, "micro_batch": 4, "lora_rank": 16, "quantized_bits": 4, "precision": "bf16",
         "recompute": "full"},
    ),
    "trl_sft.yaml": (
        "model_name_or_path: Qwen/Qwen2.5-7B\nmax_length: 2048\nuse_peft: false\n",
        {"sequence": 2048, "micro_batch": 8, "precision": "amp", "optimizer": "adamw_fused"},
    ),
    "run_ppo.sh": (
        "python3 -m openrlhf.cli.train_ppo_ray --pretrain meta-llama/Meta-Llama-3-8B --micro_train_batch_size 2 \\\n"
        "  --prompt_max_len 1024 --generate_max_len 512 --zero_stage 3 --bf16 --adam_offload \\\n"
        "  --gradient_checkpointing --actor_num_nodes 2 --actor_num_gpus_per_node 8\n",
        {"sequence": 1536, "micro_batch": 2, "sharding": "zero3", "offload_optimizer": True, "world": 16,
         "recompute": "full", "framework": "deepspeed"},
    ),
    "verl.yaml": (
        "actor_rollout_ref:\n  model: {path: Qwen/Qwen2.5-7B}\n  actor: {ppo_micro_batch_size_per_gpu: 2}\n"
        "data: {max_prompt_length: 512, max_response_length: 1024}\ntrainer: {nnodes: 1, n_gpus_per_node: 8}\n",
        {"sequence": 1536, "micro_batch": 2, "world": 8, "sharding": "fsdp"},
    ),
    "flags.txt": (
        "--training.seq_len 8192 --training.local_batch_size=1 --parallelism.expert_parallel_degree 4",
        {"sequence": 8192, "micro_batch": 1, "expert": 4, "sharding": "fsdp"},
    ),
}  # fmt: skip


@each_row("name", RECIPES)
def test_recipes(name):
    text, expected = RECIPES[name]
    setup = read_configuration(text, name).setup
    assert {key: setup[key] for key in expected} == expected


def test_fsdp_with_experts_tells_bf16_from_mixed_precision():
    given = {"model": "mixtral-8x7b", "framework": "torchtitan", "world": 8, "expert": 8}
    mixed, pure = (
        answer_calculation("memory", {**given, "precision": precision}).result["needed_gib"][
            "expected"
        ]
        for precision in ("amp", "bf16")
    )
    assert mixed > pure + 20


def test_offloaded_states_are_counted_in_host_memory():
    config = {
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
        "bf16": {"enabled": True},
    }
    draft = find_model("llama-3-70b").merge(read_configuration(json.dumps(config), "ds.json"))
    run = build_run(draft)
    host = size_host(run.shape, run.setup)
    # No number of GPUs is given: one node's eight share the states.
    assert run.setup.world == 8
    assert any("--world" in line for line in run.assumed)
    # Adam's moments and the fp32 copy, gradients in bf16 and in fp32.
    assert sum(host.values()) == 18 * run.shape.parameters // 8 + PROCESS
    node = size_node(run.shape, run.setup)
    assert node["unpinned"] == 18 * run.shape.parameters + 8 * PROCESS < node["pinned"]


RECIPE_ROWS = read_rows((ROOT / "evals/truth/memory_recipes.jsonl").read_text(), "recipes")


def test_recipes_measured_on_one_and_two_gpus():
    """8-bit and paged optimizers, NF4 and 8-bit weights, compiled blocks, ZeRO and FSDP with offload."""
    result = score_rows(RECIPE_ROWS)
    assert (result["rows_measured"], result["rows_failed"]) == (len(RECIPE_ROWS), 0)
    assert result["mean_error"] <= 0.005
    assert result["worst_error"] <= 0.02


def test_host_memory_of_offloaded_states_as_measured():
    """Two runs with a process of their own; of the others those whose libraries alone had been loaded before."""
    rows = [row for row in RECIPE_ROWS if row.get("offload_optimizer")]
    alone = [row for row in rows if row["world"] == 1]
    later = [row for row in rows if row["world"] == 2 and row["stage"] == 2]
    assert (len(alone), len(later)) == (2, 2)
    for row in alone + later:
        run = read_row(row)
        found = size_host(run.shape, run.setup)
        size = sum(found.values()) - (found["libraries"] if row in later else 0)
        near = 0.01 if row in alone else 0.04
        assert size / 2**30 == pytest.approx(row["measured"]["host_rss_growth"], rel=near)


def test_what_is_not_spelled_out_lies_inside_the_printed_range():
    """Zamba 2's shared attention blocks: counted exactly, activations a range."""
    for row in read_rows((ROOT / "evals/truth/memory_partial.jsonl").read_text(), "partial"):
        run = read_row(row)
        assert run.shape.partial
        assert run.shape.parameters == row["params"]
        found = judge(estimate_step(run.shape, run.setup), run.setup).allocated
        assert found.low <= row["measured"]["peak_allocated"] <= found.high


def test_the_parts_add_up_and_the_sentence_says_so():
    answer = answer_calculation("memory", {"model": "llama-3-8b", "card": "H100-80GB"})
    total = sum(row["gib"] for row in answer.result["breakdown"])
    assert total == pytest.approx(round(answer.result["needed_gib"]["expected"], 2), abs=1e-6)
    assert f"{answer.result['needed_gib']['expected']:.1f} GiB" in answer.sentence
    assert all(change["reason"] for change in answer.result["changes"])


def test_the_bubble_of_a_run():
    log = (
        "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 "
        "--global-batch-size 64 --pipeline-model-parallel-size 8 --world-size 32 --swiglu --bf16 "
        "--vocab-size 128256 --max-position-embeddings 4096"
    )
    answer = answer_calculation("bubble_run", {"log": log, "step_ms": 2400.0})
    assert answer.result["bubble_ms"] == pytest.approx(2400 * 7 / 23, rel=1e-6)
    kinds = {row["schedule"] for row in answer.result["alternatives"]}
    assert {"zb-h1", "zb-v", "dualpipe", "interleaved"} <= kinds
    assert sum(answer.result["balance"]["best"]) == 32
    assert answer.result["balance"]["saves_ms"] >= 0
    size = {
        row["schedule"]: row["gib"]
        for row in answer.result["alternatives"]
        if row["microbatches"] == 16
    }
    assert size["dualpipe"] > answer.result["gib"] == pytest.approx(size["zb-h1"], rel=0.01)
    assert "GiB" in answer.sentence


def test_the_bubble_of_a_profile():
    """10 ms a step, of which 4 ms wait in a transfer, 1 ms of it hidden by a matmul."""
    kernel = {"ph": "X", "cat": "kernel"}
    events = []
    for step in range(2):
        at = 10_000 * step
        events += [
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"ProfilerStep#{step}",
                "ts": at,
                "dur": 10_000,
            },
            {**kernel, "name": "ampere_bf16_gemm", "ts": at, "dur": 7_000},
            {**kernel, "name": "ncclDevKernel_SendRecv(...)", "ts": at + 6_000, "dur": 4_000},
        ]
    text = json.dumps({"traceEvents": events})
    answer = answer_calculation("bubble_run", {"log": text})
    assert (answer.result["step_ms"], answer.result["waited_ms"]) == (10.0, 3.0)
    assert answer.sentence.startswith("3 of 10 ms")
    sized = answer_calculation("bubble_run", {"log": text, "stages": 4, "microbatches": 8})
    assert sized.result["bubble_ms"] == pytest.approx(10 * 3 / 11, rel=1e-3)
    assert "3 ms of waiting" in sized.sentence
    assert sized.result["alternatives"][0]["saves_ms"] > 0


def test_an_unknown_family_gets_a_bounded_answer():
    config = {
        "model_type": "not_out_yet", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16,
        "intermediate_size": 8192, "vocab_size": 32000,
    }  # fmt: skip
    run = build_run(read_configuration(json.dumps(config), "config.json"))
    answer = report_memory(run, changes=False)
    assert "model_type not_out_yet is not known" in answer["sentence"]
    assert "exact" not in answer["sentence"]
    known = report_memory(
        build_run(read_configuration(json.dumps({**config, "model_type": "llama"}), "config.json")),
        changes=False,
    )
    assert answer["allocated_gib"]["low"] <= known["allocated_gib"]["expected"]
    assert answer["allocated_gib"]["high"] > 1.5 * known["allocated_gib"]["expected"]
