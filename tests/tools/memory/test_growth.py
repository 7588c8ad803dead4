"""What had grown before a process ran out of GPU memory."""

from __future__ import annotations

import pytest
from tests.rows import each_row

from firstfault_tools.memory.leak import KEPT, LEAK
from firstfault_tools.memory.leak import find_in_lines as find_leak
from firstfault_tools.memory.load_growth import KIND
from firstfault_tools.memory.load_growth import find_in_lines as find_load

OOM = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a "
    "total capacity of 79.11 GiB of which 1.00 GiB is free."
)


def number(texts: list[str]) -> list[tuple[int, str]]:
    return list(enumerate(texts, 1))


@each_row(("gain", "leaks"), [(2.5, True), (0.0, False)])
def test_steady_climb_is_a_leak(gain: float, leaks: bool) -> None:
    texts = [
        f"step: {s} loss: 2.{s} memory: {30 + gain * s / 10:.2f}GiB" for s in range(10, 190, 10)
    ]
    found = list(find_leak(number([*texts, OOM]), "log.txt"))
    assert [f.kind for f in found] == ([LEAK] if leaks else [])


def test_climb_without_out_of_memory_says_nothing() -> None:
    texts = [f"step: {s} loss: 2.{s} memory: {30 + s}GiB" for s in range(20)]
    assert not list(find_leak(number(texts), "log.txt"))


@each_row(
    ("template", "sizes", "grown"),
    [
        ("rank 3 batch tokens: {}", [4000, 4100, 3900, 4050, 9800], True),
        ("rank 3 batch tokens: {}", [4000, 4100, 3900, 4050, 4100], False),
        ("rank 3 step {} loss 2.1 tokens/s 100", [1, 2, 3, 4, 90], False),
    ],
)
def test_larger_work_before_the_end(template: str, sizes: list[int], grown: bool) -> None:
    found = list(find_load(number([*(template.format(n) for n in sizes), OOM]), "log.txt"))
    assert [f.kind for f in found] == ([KIND] if grown else [])


@each_row(
    ("code", "kept"),
    [
        (["    total_loss += loss"], True),
        (["12:        outputs.append(logits)"], True),
        (["    meter.update(loss)"], True),
        (["    total_loss += loss.item()"], False),
        (["    outputs.append(logits.detach().cpu())"], False),
        (["    count += n", "    files.append(path)"], False),
        (["    model.eval()", "    for x in loader:", "        y = model(x)"], True),
        (["    model.eval()", "    with torch.no_grad():", "        y = model(x)"], False),
        (["    model.eval()", "    print(1)"], False),
    ],
)
def test_pasted_code_that_keeps_graphs(code: list[str], kept: bool) -> None:
    found = list(find_leak(number([OOM, *code]), "log.txt"))
    assert [f.kind for f in found] == ([KEPT] if kept else [])
    assert not list(find_leak(number(code), "log.txt"))


def test_climb_of_the_validation_begins_after_the_training() -> None:
    texts = [f"epoch 0 train batch {s} loss 0.2 gpu0 mem 6120 MiB" for s in (0, 1600, 3200)]
    texts += [
        f"epoch 0 val batch {s} loss 0.2 gpu0 mem {6120 + 15 * s} MiB" for s in range(0, 280, 35)
    ]
    (found,) = find_leak(number([*texts, OOM]), "log.txt")
    assert found.kind == LEAK
    assert "during the validation" in found.title
    assert found.facts["first_gib"] == pytest.approx(6120 / 1024, rel=1e-3)


@each_row(("after", "rises"), [(42.1, True), (40.1, False)])
def test_step_across_a_save_that_stays(after: float, rises: bool) -> None:
    texts = [f"step {s} loss 2.0 memory: 40.0GiB" for s in range(10, 60, 10)]
    texts += ["saved checkpoint to out/step_50/model.pt"]
    texts += [f"step {s} loss 2.0 memory: {after}GiB" for s in range(60, 100, 10)]
    found = list(find_leak(number([*texts, OOM]), "log.txt"))
    assert [f.kind for f in found] == ([LEAK] if rises else [])
