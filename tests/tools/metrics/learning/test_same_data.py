"""Equal samples on all ranks are told; different ones, and one rank alone, are not."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.findings import Category, Level
from firstfault_tools.metrics.learning.same_data import find_in_lines


def log(*texts: str) -> list[tuple[int, str]]:
    return list(enumerate(texts, start=1))


def test_the_same_first_samples() -> None:
    (found,) = find_in_lines(
        log(*(f"[rank{r}] first batch sample ids: [17, 4, 99, 12]" for r in range(4))), "a.log"
    )
    assert "all 4 ranks" in found.title
    assert "DistributedSampler" in found.title


def test_losses_with_their_seed() -> None:
    texts = [f"[rank{r}] seed 7 step {s} loss 2.{s}12345" for s in (1, 2, 3) for r in (0, 1)]
    (found,) = find_in_lines(log(*texts), "a.log")
    assert "identical" in found.title


@each_row(
    "texts",
    [
        [f"[rank{r}] first batch sample ids: [{r}, 4, 99, 12]" for r in range(4)],
        ["[rank0] first batch sample ids: [17, 4, 99, 12]"] * 2,
        [f"[rank{r}] visible device ids: [0, 1, 2, 3]" for r in range(1)],
        [f"[rank{r}] seed 7 step {s} loss 2.{s}1{r}345" for s in (1, 2, 3) for r in (0, 1)],
        [f"[rank{r}] step {s} loss 2.{s}12345" for s in (1, 2, 3) for r in (0, 1)],
    ],
)
def test_nothing_to_tell(texts: list[str]) -> None:
    assert find_in_lines(log(*texts), "a.log") == ()


ORDER = [
    f"[rank{r}] epoch {e} first batch: ['a{r}', 'b{r}', 'c{r}', 'd{r}']"
    for e in range(3)
    for r in (0, 1)
]


def test_the_same_order_in_every_epoch() -> None:
    (found,) = find_in_lines(log(*ORDER), "a.log")
    assert "set_epoch" in found.title
    assert "3 epochs" in found.title
    assert found.level is Level.FAILURE


@each_row("ids", ["[47, 3, 9]", "[47 3 9]", "tensor([47, 3, 9], device='cuda:0')"])
def test_the_order_of_numbers(ids: str) -> None:
    (found,) = find_in_lines(log(*(f"[rank0] epoch {e} batch ids: {ids}" for e in range(3))), "a")
    assert found.category is Category.CODE_BUG


def test_every_pass_begins_at_the_offset_of_the_resume() -> None:
    passes = ["[rank0] new pass over the dataset: first idx 4800, last idx 6399"] * 3
    (found,) = find_in_lines(log("dataset: 6400 samples", *passes), "a.log")
    assert "last 25%" in found.title
    (found,) = find_in_lines(log("consumed_samples=4800", *passes), "a.log")
    assert "one part of the data set" in found.title


@each_row(
    "texts",
    [
        [t.replace("'a", f"'a{n}") for n, t in enumerate(ORDER)],
        [t.replace("first batch", "val batch") for t in ORDER],
        ORDER[:1],
        [f"epoch {e} first batch: [{e}7, 3, 9]" for e in range(4)],
        [f"epoch {e} first batch: [0 1 2 3]" for e in range(4)],
        ["consumed_samples=480", *[f"new pass: first idx {i}, last idx 639" for i in (480, 0, 0)]],
        ["dataset: 6400 samples", *["epoch pass: first idx 0, last idx 6399"] * 3],
        ["dataset: 6400 samples", "epoch pass: first idx 4800, last idx 6399"],
        ["dataset: 9000 samples", *["epoch pass: first idx 4800, last idx 6399"] * 3],
    ],
)
def test_epochs_that_are_as_they_should_be(texts: list[str]) -> None:
    assert find_in_lines(log(*texts), "a.log") == ()
