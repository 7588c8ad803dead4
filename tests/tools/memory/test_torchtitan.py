"""torchtitan's job files: flavors by name, element types, what is compiled, its own defaults."""

import pytest
from tests.rows import each_row

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.memory.configuration import build_run
from firstfault_tools.memory.configuration_files import read_configuration

JOB = '[model]\nname = "{name}"\nflavor = "{flavor}"\n{more}\n[parallelism]\ndata_parallel_shard_degree = 8\n'


def read(name="llama3", flavor="8B", more=""):
    text = JOB.format(name=name, flavor=flavor, more=more)
    return build_run(read_configuration(text, "job.toml"))


@each_row(
    ("name", "flavor", "parameters"),
    [
        ("llama3", "8B", 8_030_261_248),
        ("llama3", "405B", 405_853_388_800),
        ("qwen3", "0.6B", 596_049_920),
        ("qwen3", "30B-A3B", 30_532_122_624),
        ("deepseek_v3", "16B", 15_706_484_224),
        ("deepseek_v3", "671B", 671_026_404_352),
    ],
)
def test_flavors_have_their_published_counts(name, flavor, parameters):
    assert read(name, flavor).shape.parameters == parameters


@each_row(
    ("more", "field", "value"),
    [
        ("", "precision", "amp"),
        ("", "micro_batch", 8),
        ("", "sequence", 2048),
        ("", "recompute", "selective"),
        ('[activation_checkpoint]\nmode = "none"', "recompute", "none"),
        ("[training]\nlocal_batch_size = 2", "micro_batch", 2),
        ('[training]\ndtype = "bfloat16"', "precision", "bf16"),
        ('[training]\nmixed_precision_param = "float32"', "precision", "fp32"),
        ('[optimizer]\nname = "AdamW"\nimplementation = "foreach"', "optimizer", "adamw_foreach"),
        ("[compile]\nenable = true", "compiled", True),
        ('[compile]\nenable = true\ncomponents = ["model"]', "loss_eager", True),
        ('[compile]\nenable = true\ncomponents = ["loss"]', "compiled", False),
    ],
)
def test_job_files_say_it_or_torchtitan_does(more, field, value):
    assert getattr(read(more=more).setup, field) == value


def test_an_unknown_flavor_is_named_with_what_to_give():
    with pytest.raises(InvalidParameter, match="foo 9b is not known here: give --model"):
        read("foo", "9B")
