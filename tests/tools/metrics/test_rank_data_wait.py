"""A rank that waits for its own data is the late one, whatever the word for it."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.metrics.pace.rank_parts import find_in_lines, kind_of


def log(late: float) -> list[tuple[int, str]]:
    text = "[w{r}][rank{r}] step {s} data_wait {d} s step 9.1 s"
    rows = [text.format(r=r, s=s, d=late if r == 3 else 0.03) for s in (1, 2, 3) for r in range(4)]
    return list(enumerate(rows, start=1))


def test_the_late_rank_is_named() -> None:
    (found,) = find_in_lines(log(7.4), "a.log")
    assert found.rank == 3
    assert find_in_lines(log(0.04), "a.log") == ()


@each_row(
    ("name", "kind"),
    [
        ("data wait", "input data"),
        ("wait for data", "input data"),
        ("allreduce wait", None),
        ("wait", None),
    ],
)
def test_waits(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind
