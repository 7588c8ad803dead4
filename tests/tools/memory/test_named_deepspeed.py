"""Recipes name a DeepSpeed file that is not at hand: its name tells stage and offload, and that is said."""

from tests.rows import each_row

from firstfault_tools.memory.configuration import build_run
from firstfault_tools.memory.configuration_files import read_configuration

FACTORY = """model_name_or_path: Qwen/Qwen2.5-7B-Instruct
finetuning_type: full
cutoff_len: 2048
per_device_train_batch_size: 1
{half}: true
deepspeed: {file}
"""
AXOLOTL = """base_model: NousResearch/Meta-Llama-3-8B
sequence_len: 4096
micro_batch_size: 1
{half}: true
deepspeed: {file}
"""


@each_row(
    ("recipe", "half", "file", "sharding", "precision", "moved"),
    [
        (FACTORY, "bf16", "examples/deepspeed/ds_z3_config.json", "zero3", "bf16", (False, False)),
        (FACTORY, "fp16", "examples/deepspeed/ds_z2_config.json", "zero2", "fp16", (False, False)),
        (FACTORY, "bf16", "ds_z2_offload_config.json", "zero2", "bf16", (True, False)),
        (FACTORY, "bf16", "ds_z3_offload_config.json", "zero3", "bf16", (True, True)),
        (AXOLOTL, "bf16", "zero3_bf16_cpuoffload_all.json", "zero3", "bf16", (True, True)),
        (AXOLOTL, "bf16", "zero3_bf16_cpuoffload_params.json", "zero3", "bf16", (False, True)),
        (AXOLOTL, "bf16", "deepspeed_configs/zero1.json", "zero1", "bf16", (False, False)),
    ],
)  # fmt: skip
def test_stage_and_offload_are_read_off_the_name(recipe, half, file, sharding, precision, moved):
    run = build_run(read_configuration(recipe.format(half=half, file=file), "recipe.yaml"))
    setup = run.setup
    assert (setup.framework, setup.sharding, setup.precision) == ("deepspeed", sharding, precision)
    assert (setup.offload_optimizer, setup.offload_parameters) == moved
    assert setup.host_pinned is any(moved)
    assert any(file in line and sharding[-1] in line for line in run.assumed)
