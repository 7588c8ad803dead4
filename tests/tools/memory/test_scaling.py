"""A layer's law says what its tape says, at lengths and batches that were not tried for it."""

import pytest
from tests.rows import each_row

from firstfault_tools.memory import eager_layers
from firstfault_tools.memory.configuration import Draft, build_run
from firstfault_tools.memory.eager_step import choose_types
from firstfault_tools.memory.models import find_model, list_models
from firstfault_tools.memory.scaling import find_laws
from firstfault_tools.memory.tape import Tape


@pytest.mark.parametrize("precision", ["bf16", "amp"])
@pytest.mark.parametrize("model", sorted(list_models())[::7])
def test_law_says_what_the_tape_says(model, precision):
    drafted = find_model(model).merge(Draft({}, {"precision": precision}))
    lawful = 0
    for sequence, batch in ((257, 1), (440, 1), (320, 4), (384, 3)):
        run = build_run(drafted.merge(Draft({}, {"sequence": sequence, "micro_batch": batch})))
        types, layer = choose_types(run.setup), run.setup.layer
        groups, head = eager_layers.list_spans(run.shape, layer, types)
        assert groups == eager_layers._replay_layers(run.shape, layer, types)
        assert head == eager_layers._replay_head(run.shape, layer, types)
        lawful += groups[0][0].levels is None
    # T5's learned bias writes the scores out; a hybrid's chunks divide none of these lengths.
    assert lawful or run.shape.score_bias or run.shape.hybrid is not None


def test_written_out_scores_have_no_law():
    """They grow with the square of the length."""
    run = build_run(
        find_model("llama-3-8b").merge(Draft({}, {"sequence": 512, "attention": "eager"}))
    )
    types = choose_types(run.setup)
    assert eager_layers._find_laws(run.shape, run.setup.layer.without_tokens, types, True) is None


@each_row(("power", "lawful"), [(1, True), (2, False)])
def test_laws_are_checked(power, lawful):
    def replay(sequence, batch):
        tape = Tape(sequence * batch * 8)
        tape.run("weights and rows", (0,), batch * sequence**power + 1000, save=(0,))
        return ((tape.replay(), 2),)

    for single in (True, False):
        laws = find_laws(replay, single=single)
        assert (laws is not None) is lawful
        if laws:
            (law, count) = laws[0]
            assert count == 2
            assert law.at(500 * 6, 6) == replay(500, 6)[0][0]
