"""Do followers share one question, and does each get an answer young enough?"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from firstfault.errors import IncidentNotFound
from firstfault.incidents.events import EventKind
from firstfault.incidents.store import IncidentProgress, IncidentStore
from firstfault.incidents.watch import Watch
from firstfault.service import NewIncident, PastedText, Service

OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


class CountingStore:
    """Counts the questions, and takes its time with each."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def progress(self, wanted: Sequence[str]) -> dict[str, IncidentProgress]:
        self.asked.append(tuple(wanted))
        time.sleep(0.005)
        return {name: IncidentProgress(len(self.asked), False) for name in wanted if name != "gone"}


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def watch(store: CountingStore) -> Watch:
    return Watch(store)  # type: ignore[arg-type]


def test_twenty_followers_ask_hardly_more_often_than_one(
    watch: Watch, store: CountingStore
) -> None:
    together = threading.Barrier(20)

    def follow(name: str) -> None:
        with watch.follow(name):
            together.wait()
            for _ in range(10):
                assert watch.progress(name) is not None
                time.sleep(0.02)

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(follow, (f"incident-{n}" for n in range(20))))
    assert len(store.asked) < 40


def test_a_newcomer_is_asked_for_though_the_last_answer_is_young(
    watch: Watch, store: CountingStore
) -> None:
    with watch.follow("first"):
        assert watch.progress("first", age=0) is not None
        with watch.follow("second"):
            assert watch.progress("second", age=0) is not None
    assert store.asked == [("first",), ("first", "second")]


def test_young_answers_are_used_again_and_old_ones_are_not(
    watch: Watch, store: CountingStore
) -> None:
    with watch.follow("one"):
        watch.progress("one", age=0)
        watch.progress("one", age=60)
        assert len(store.asked) == 1
        watch.progress("one", age=0)
    assert len(store.asked) == 2


def test_nobody_is_asked_for_after_the_last_follower_left(
    watch: Watch, store: CountingStore
) -> None:
    with watch.follow("left"):
        watch.progress("left", age=0)
    with watch.follow("here"):
        watch.progress("here", age=0)
    assert store.asked[-1] == ("here",)


def test_what_is_gone_is_none(watch: Watch) -> None:
    with watch.follow("gone"):
        assert watch.progress("gone", age=0) is None


def test_many_are_read_in_one_question(idle_service: Service) -> None:
    names = [idle_service.start(NewIncident((PastedText(OOM),))) for _ in range(3)]
    store: IncidentStore = idle_service.record.incidents
    assert set(store.progress([*names, "nowhere"])) == set(names)
    assert store.progress([]) == {}


def test_an_incident_deleted_while_it_is_followed_ends_the_following(
    idle_service: Service,
) -> None:
    incident = idle_service.start(NewIncident((PastedText(OOM),)))
    following = idle_service.follow(incident, timeout=30)
    assert next(following).kind is EventKind.RECEIVED
    idle_service.delete(incident)
    with pytest.raises(IncidentNotFound, match="may have been deleted"):
        list(following)
