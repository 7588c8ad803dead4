"""Which rank is fuller than its peers, and at which event did memory rise for good?"""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.findings import Level
from firstfault_tools.hardware.excerpt import number_lines
from firstfault_tools.memory import leak


def rows(*held: float) -> list[str]:
    return [f"[rank{r}] step 10 loss 0.41 mem {gib} GB" for r, gib in enumerate(held)]


def find(*lines: str) -> tuple[str, ...]:
    found = leak.find_levels(number_lines("\n".join(lines)), "log")
    assert all(f.level is Level.CONTEXT for f in found)
    return tuple(f.title for f in found)


def test_a_rank_above_the_others_is_named_with_its_own_line() -> None:
    (title,) = find(
        *(f"[rank{r}] policy model loaded on cuda:{r}" for r in range(4)),
        "[rank2] reward model loaded on cuda:2, 13.9 GB",
        *rows(24.1, 24.2, 38.2, 24.1),
    )
    assert "rank 2 holds" in title
    assert "reward model" in title


@each_row(
    "held", [(24.1, 24.2, 24.3, 24.1), (24.1, 38.0, 38.2, 24.1), (24.1, 38.2), (0.6, 0.9, 0.6, 0.6)]
)
def test_ranks_of_like_memory_are_no_fact(held: tuple[float, ...]) -> None:
    assert find(*rows(*held)) == ()


def test_a_card_of_a_listing() -> None:
    (title,) = find("0, 79014 MiB", "1, 24418 MiB", "2, 24390 MiB", "3, 24402 MiB")
    assert "GPU 0 holds" in title


def steps(*held: float, event: str = "", at: int = 0) -> list[str]:
    out = [f"step {10 * n} loss 1.8 mem {gib}GiB" for n, gib in enumerate(held, 1)]
    return [*out[:at], event, *out[at:]] if event else out


def test_a_rise_at_an_event_that_stays() -> None:
    (title,) = find(*steps(66.0, 66.0, 66.1, 75.2, 75.3, event="EMA started", at=3))
    assert "rose from 66" in title
    assert "EMA started" in title


@each_row(
    "lines",
    [
        steps(66.0, 66.0, 66.1, 75.2, 75.3),
        steps(66.0, 66.0, 66.1, 66.2, 66.3, event="EMA started", at=3),
        steps(66.0, 66.0, 66.1, 75.2, 66.3, event="evaluation", at=3),
        steps(60.0, 64.0, 68.0, 72.0, 76.0, event="evaluation", at=3),
    ],
)
def test_no_event_no_rise_or_a_slope_are_no_fact(lines: list[str]) -> None:
    assert find(*lines) == ()
