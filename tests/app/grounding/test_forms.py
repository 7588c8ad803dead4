"""Both ways of every form: what is said in another form of the evidence passes, what is invented in that form does not."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from firstfault.grounding.claims import Claim, Fault, check_basis
from firstfault.grounding.forms import clock_stands, name_stands, stands_shortened
from firstfault.grounding.items import Ground, Item, ItemKind

WORDS = st.lists(st.text("abcdefghijklm", min_size=4, max_size=9), min_size=5, max_size=14)
ELSE = st.text("nopqrstuvwxyz", min_size=4, max_size=9)
RANKS = st.sets(st.integers(0, 500), min_size=2, max_size=9)


def faults(text: str, *lines: str, world: int = 0) -> set[Fault]:
    items = {
        f"F1:{n}": Item(f"F1:{n}", ItemKind.LOG, line, "a.log", n)
        for n, line in enumerate(lines, 1)
    }
    found = check_basis(Claim(text, tuple(items)), Ground(items, world_size=world))
    return {o.fault for o in found}


@settings(deadline=None)
@given(WORDS, st.data(), ELSE)
def test_a_quote_may_be_shortened_and_nothing_put_in(
    words: list[str], data: st.DataObject, strange: str
) -> None:
    line = " ".join(words)
    first = data.draw(st.integers(1, len(words) - 3))
    last = data.draw(st.integers(first + 1, len(words) - 1))
    head, tail = " ".join(words[:first]), " ".join(words[last:])
    for gap in (" ... ", "…", " [...] "):
        assert faults(f'It says "{head}{gap}{tail}".', line) == set()
        assert Fault.QUOTE in faults(f'It says "{head}{gap}{strange} {tail}".', line)
    assert Fault.QUOTE in faults(f'It says "{head} … {tail}".', f"{head} is not {tail}")


def test_pieces_of_two_lines_or_in_another_order_are_no_quote() -> None:
    assert not stands_shortened("rank three … died here", ["rank three waits", "it died here"])
    assert not stands_shortened("died here … rank three", ["rank three died here"])
    assert not stands_shortened("a … b", ["a or b"])


@settings(deadline=None)
@given(RANKS, st.integers(501, 9_999))
def test_a_list_of_ranks_holds_printed_ranks_only(ranks: set[int], strange: int) -> None:
    lines = [f"[rank{r}]: waits" for r in ranks]
    *some, last = map(str, sorted(ranks))
    said = f"Ranks {', '.join(some)} and {last} wait."
    assert faults(said, *lines) == set()
    assert Fault.NUMBER in faults(f"Ranks {', '.join(some)} and {strange} wait.", *lines)
    assert Fault.NUMBER in faults(f"Ranks {some[0]}-{strange} wait.", *lines)


@settings(deadline=None)
@given(st.integers(601, 36_000), st.integers(120, 900))
def test_what_lies_between_two_stamps_is_recomputed(apart: int, off: int) -> None:
    assume((apart + off) % 1000)  # 13,000 may be said in round of 12,490
    begin = datetime(2026, 3, 1, 1, 2, 3)
    lines = [
        f"{begin:%Y-%m-%d %H:%M:%S} begins",
        f"{begin + timedelta(seconds=apart):%Y-%m-%d %H:%M:%S} ends",
    ]
    assert faults(f"It took {apart} seconds.", *lines) == set()
    assert faults(f"It took {round(apart / 60)} minutes.", *lines) == set()
    assert Fault.NUMBER in faults(f"It took {apart + off} seconds.", *lines)


@settings(deadline=None)
@given(st.datetimes(datetime(2024, 1, 1), datetime(2027, 1, 1)), st.integers(2, 500))
def test_a_time_of_day_is_the_printed_one_in_any_spelling(when: datetime, off: int) -> None:
    stated = f"{when:%Y-%m-%d %H:%M:%S}"
    assume((when + timedelta(minutes=off)).minute != when.minute)
    for line in (
        f"{when:%Y-%m-%dT%H:%M:%S}Z",
        f"[{when:%a %b %e %H:%M:%S %Y}]",
        f"{when:%b %d %H:%M:%S} gx-1",
        f"{when:%m-%d %H:%M:%S,123}",
    ):
        assert clock_stands(stated, line), line
        assert clock_stands(f"{when:%H:%M}", line)
        assert not clock_stands(f"{when + timedelta(minutes=off):%H:%M:%S}", line)
        assert not clock_stands(f"{when + timedelta(days=1):%Y-%m-%d %H:%M:%S}", line)


@settings(deadline=None)
@given(st.integers(1, 99), st.integers(1, 99))
def test_a_machine_is_named_as_it_is_or_not_at_all(one: int, other: int) -> None:
    assume(one != other)
    said = f"node-{one} at ip-10-0-3-{one} and host 10.9.0.{one} stopped"
    for name in (f"node-{one}", f"node{one}", f"10.0.3.{one}", f"ip-10-9-0-{one}"):
        assert name_stands(name, said), name
    for name in (f"node-{other}", f"node{other}", f"10.0.3.{other}", f"ip-10-9-0-{other}"):
        assert not name_stands(name, said), name


@settings(deadline=None)
@given(st.lists(ELSE, min_size=2, max_size=4))
def test_an_invented_name_of_code_stands_nowhere(parts: list[str]) -> None:
    said = 'file "trainer.py", line 9, in train_loop; per_device_train_batch_size=4; allreduce'
    for joint in (".", "_"):
        assert not name_stands(joint.join(parts), said)
        assert not name_stands(joint.join(["train", *parts]), said)
    for name in ("trainer.train_loop", "per_device_batch_size", "all_reduce"):
        assert name_stands(name, said)
