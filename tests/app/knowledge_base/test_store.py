from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.rows import each_row

from firstfault.errors import CannotAnalyse
from firstfault.knowledge_base import store as store_module
from firstfault.knowledge_base.store import (
    Entry,
    Kind,
    VectorStore,
    open_embedded,
    open_server,
    text_key,
)

A = Entry("a#Summary", "a", Kind.PASSAGE, "disk is full")
B = Entry("b#Summary", "b", Kind.PASSAGE, "loss is nan")
P = Entry("b?0", "b", Kind.PHRASE, "nan loss")
NONE: Callable[[], Mapping[str, list[float]]] = dict


class HashOfOne:
    """One vector for whatever is asked."""

    name = "one"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[1.0] + [0.0] * 63 for _ in texts]

    def embed_query(self, text: str) -> list[float]:
        return [1.0] + [0.0] * 63


@pytest.fixture(scope="session")
def chroma_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Chroma server on a free loopback port."""
    program = Path(sys.executable).parent / "chroma"
    if not program.is_file() and shutil.which("chroma") is None:
        pytest.skip("the chroma command is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path_factory.mktemp("chroma-server")
    command = [
        str(program),
        "run",
        "--path",
        str(folder),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder
    )
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if server.poll() is not None:
                pytest.skip(f"chroma run ended with {server.returncode}")
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=20)


@pytest.fixture(params=["embedded", "server"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "server":
        opened = open_server(request.getfixturevalue("chroma_server"))
        for collection in opened.list_collections():
            opened.delete_collection(collection.name)
        return opened
    return open_embedded(tmp_path / "chroma")


def test_only_what_changed_is_embedded(client: Any, hash_embedder: Any) -> None:
    store = VectorStore(client, hash_embedder.name)
    assert store.update([A, B, P], lambda: hash_embedder, NONE) == 3
    assert store.update([A, B, P], lambda: pytest.fail("embedder loaded"), NONE) == 0
    changed = Entry(A.id, A.page, A.kind, "disk quota used up")
    assert store.update([changed, P], lambda: hash_embedder, NONE) == 1
    near = store.nearest(hash_embedder.embed_query("disk quota used up"), 10, Kind.PASSAGE)
    assert [i for i, _ in near] == [A.id]
    assert near[0][1] == pytest.approx(1.0, abs=1e-4)


def test_a_reopened_store_knows_its_state(client: Any, hash_embedder: Any) -> None:
    VectorStore(client, hash_embedder.name).update([A, B], lambda: hash_embedder, NONE)
    again = VectorStore(client, hash_embedder.name)
    assert again.update([A, B], lambda: pytest.fail("embedder loaded"), NONE) == 0


def test_ready_vectors_need_no_embedder(client: Any, hash_embedder: Any) -> None:
    ready = {text_key(e.text, "other"): hash_embedder.embed_query(e.text) for e in (A, B)}
    store = VectorStore(client, "other")
    assert store.update([A, B], lambda: pytest.fail("embedder loaded"), lambda: ready) == 0
    assert store.nearest(hash_embedder.embed_query("loss is nan"), 1, Kind.PASSAGE)[0][0] == B.id


def test_a_kind_without_entries_finds_nothing(client: Any, hash_embedder: Any) -> None:
    store = VectorStore(client, hash_embedder.name)
    store.update([A], lambda: hash_embedder, NONE)
    assert store.nearest(hash_embedder.embed_query("x"), 9, Kind.PHRASE) == []


def test_a_store_of_all_kinds_in_one_collection_is_taken_over(
    client: Any, hash_embedder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kept by earlier versions: passages keep their vectors, phrases move, settings follow."""
    monkeypatch.setattr(store_module, "EF_SEARCH", 200)
    together = VectorStore(client, hash_embedder.name)
    both = together._collections[Kind.PASSAGE]
    monkeypatch.setattr(together, "_collections", dict.fromkeys(Kind, both))
    together._add(both, [A, B, P], {e.id: together._fingerprint(e) for e in (A, B, P)},
                  lambda: hash_embedder, {}, None)  # fmt: skip
    monkeypatch.undo()
    hash_embedder.texts.clear()
    store = VectorStore(client, hash_embedder.name)
    assert store.update([A, B, P], lambda: hash_embedder, NONE) == 1
    assert hash_embedder.texts == [P.text]
    asked = hash_embedder.embed_query("nan")
    assert {i for i, _ in store.nearest(asked, 9, Kind.PASSAGE)} == {A.id, B.id}
    assert [i for i, _ in store.nearest(asked, 9, Kind.PHRASE)] == [P.id]
    for kind in Kind:
        kept = client.get_collection(store._collections[kind].name, embedding_function=None)
        assert kept.configuration["hnsw"]["ef_search"] == store_module.EF_SEARCH


def test_neighbours_of_many_are_the_exact_ones(client: Any) -> None:
    """Recall against the exact answer: 3,000 vectors near each other, as those of texts are."""
    dice = np.random.default_rng(11)
    vectors = 2.0 * dice.normal(size=64) + dice.normal(size=(3_000, 64))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    entries = [Entry(f"p{i}#S", f"p{i}", Kind.PASSAGE, f"text {i}") for i in range(3_000)]
    ready = {text_key(e.text, "v"): v.tolist() for e, v in zip(entries, vectors, strict=True)}
    store = VectorStore(client, "v")
    store.update([*entries, P], lambda: HashOfOne(), lambda: ready)
    found = expected = 0
    for asked in dice.normal(size=(20, 64)):
        exact = np.argsort(-(vectors @ asked))[:150]
        near = store.nearest(asked.tolist(), 150, Kind.PASSAGE)
        assert len(near) == 150
        assert [s for _, s in near] == sorted((s for _, s in near), reverse=True)
        cosine = float(vectors[int(near[0][0][1:-2])] @ asked / np.linalg.norm(asked))
        assert near[0][1] == pytest.approx(cosine, abs=1e-4)
        found += len({f"p{i}#S" for i in exact} & {i for i, _ in near})
        expected += 150
    assert found / expected > 0.995


def test_kinds_are_asked_apart(client: Any, hash_embedder: Any) -> None:
    store = VectorStore(client, hash_embedder.name)
    store.update([A, B, P], lambda: hash_embedder, NONE)
    assert [i for i, _ in store.nearest(hash_embedder.embed_query("x"), 9, Kind.PHRASE)] == [P.id]


@each_row("url", ["ftp://x", "nonsense", "http://"])
def test_a_bad_server_address_is_named(url: str) -> None:
    with pytest.raises(CannotAnalyse, match="FIRSTFAULT_CHROMA_URL"):
        open_server(url)


def test_a_silent_server_is_named() -> None:
    with pytest.raises(CannotAnalyse, match="no Chroma server"):
        open_server("http://127.0.0.1:9")


def test_a_database_that_is_locked_for_a_moment_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from chromadb.errors import InternalError

    monkeypatch.setattr(store_module, "LOCKED_PAUSE_S", 0.0)
    refusals = ["database is locked", "database is locked"]

    class Collection:
        def modify(self, **change: object) -> None:
            if refusals:
                raise InternalError(refusals.pop())
            self.changed = change

    collection = Collection()
    store_module._modify(collection, metadata={"state": "new"})
    assert collection.changed == {"metadata": {"state": "new"}}
    refusals.append("disk image is malformed")
    with pytest.raises(InternalError, match="malformed"):
        store_module._modify(collection, metadata={})
