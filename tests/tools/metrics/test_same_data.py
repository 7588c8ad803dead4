"""Equal samples on all ranks are told; different ones, and one rank alone, are not."""

from __future__ import annotations

import pytest

from firstfault_tools.metrics.same_data import find_in_lines


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


@pytest.mark.parametrize(
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
