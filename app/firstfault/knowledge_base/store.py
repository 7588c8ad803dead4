"""Where do the vectors live? In Chroma, embedded or by URL, kept by content hash.

Each kind of entry has a collection of its own: with both in one, Chroma reads the ids of every entry of
the asked kind from SQLite before it looks for neighbours, 0.2 s a question among 100,000.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from firstfault.errors import CannotAnalyse
from firstfault.knowledge_base.vectors import Embedder
from firstfault_tools.dataclass import dataclass

BATCH = 64
LOCKED_TRIES, LOCKED_PAUSE_S = 20, 0.25
EF_SEARCH = 1_000
"""Candidates HNSW keeps while it looks for neighbours."""
GRAPH = {"max_neighbors": 32, "ef_construction": 200}
"""How HNSW links vectors. Chroma's own 16 and 100 lose 13 to 24 of 3,000 neighbours, differently in every
build of the same 3,000 vectors; these lose 1 to 4. evals/bench_index.py measures 100,000 passages."""
Progress = Callable[[int, int], None]


class Kind(StrEnum):
    """What a vector stands for."""

    PASSAGE = "passage"
    PHRASE = "phrase"
    QUESTION = "question"
    STATEMENT = "statement"


COLLECTIONS = {
    Kind.PASSAGE: "firstfault-texts",
    Kind.PHRASE: "firstfault-phrases",
    Kind.QUESTION: "firstfault-questions",
    Kind.STATEMENT: "firstfault-statements",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One text of the index: a passage, a phrase that leads to its page, a question with a plain answer, a page's statement."""

    id: str
    page: str
    kind: Kind
    text: str


def text_key(text: str, embedder: str) -> str:
    """16 hex digits that name the vector of `text` under an embedder."""
    return hashlib.sha256(f"{embedder}\x1f{text}".encode()).hexdigest()[:16]


def server_address() -> str:
    """FIRSTFAULT_CHROMA_URL, empty where the store is embedded."""
    return os.environ.get("FIRSTFAULT_CHROMA_URL", "")


def open_embedded(folder: Path | None) -> Any:
    """Chroma in this process, kept below `folder`; in memory without one."""
    import chromadb
    from chromadb.config import Settings

    settings = Settings(anonymized_telemetry=False)
    if folder is None:
        return chromadb.EphemeralClient(settings=settings)
    return chromadb.PersistentClient(path=str(folder), settings=settings)


def open_server(url: str) -> Any:
    """Client of a Chroma server that several processes share."""
    import chromadb
    from chromadb.config import Settings

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CannotAnalyse(f"FIRSTFAULT_CHROMA_URL={url}: expected http(s)://host[:port]")
    try:
        return chromadb.HttpClient(
            host=parts.hostname,
            port=parts.port or (443 if parts.scheme == "https" else 8000),
            ssl=parts.scheme == "https",
            settings=Settings(anonymized_telemetry=False),
        )
    except ValueError as error:
        raise CannotAnalyse(
            f"no Chroma server answers at FIRSTFAULT_CHROMA_URL={url}; start it or unset the variable"
        ) from error


class VectorStore:
    """Vectors of all entries. `update` brings them up to date; a hash of all says whether it must."""

    def __init__(self, client: Any, embedder: str) -> None:
        self._embedder = embedder
        # a collection keeps the graph it was made with, so another graph is another collection
        made = "\x1f".join((embedder, *(f"{k}={v}" for k, v in GRAPH.items())))
        mark = hashlib.sha256(made.encode()).hexdigest()[:8]
        self._collections = {
            kind: _open_collection(client, f"{name}-{mark}") for kind, name in COLLECTIONS.items()
        }

    def update(
        self,
        entries: Sequence[Entry],
        embed: Callable[[], Embedder],
        ready: Callable[[], Mapping[str, list[float]]],
        progress: Progress | None = None,
    ) -> int:
        """Add what is new or changed, delete what is gone; number of texts embedded here.

        `ready` loads vectors by text key that need no embedding; `embed` loads the embedder. Neither
        is called when nothing changed.
        """
        loaded = cache(ready)
        return sum(
            self._update_kind(kind, [e for e in entries if e.kind is kind], embed, loaded, progress)
            for kind in Kind
        )

    def _update_kind(
        self,
        kind: Kind,
        entries: Sequence[Entry],
        embed: Callable[[], Embedder],
        ready: Callable[[], Mapping[str, list[float]]],
        progress: Progress | None,
    ) -> int:
        collection = self._collections[kind]
        wanted = {e.id: self._fingerprint(e) for e in entries}
        state = hashlib.sha256(
            "\n".join(f"{i} {f}" for i, f in wanted.items()).encode()
        ).hexdigest()
        if (collection.metadata or {}).get("state") == state:
            return 0
        known = collection.get(include=["metadatas"])
        have = {
            i: (m or {}).get("fingerprint")
            for i, m in zip(known["ids"], known["metadatas"] or [], strict=True)
        }
        stale = [i for i in have if i not in wanted]
        if stale:
            collection.delete(ids=stale)
        todo = [e for e in entries if have.get(e.id) != wanted[e.id]]
        made = self._add(collection, todo, wanted, embed, ready() if todo else {}, progress)
        _modify(collection, metadata={"state": state, "embedder": self._embedder})
        return made

    def _add(
        self,
        collection: Any,
        todo: Sequence[Entry],
        wanted: Mapping[str, str],
        embed: Callable[[], Embedder],
        ready: Mapping[str, list[float]],
        progress: Progress | None,
    ) -> int:
        known, unknown = [], []
        for entry in todo:
            vector = ready.get(text_key(entry.text, self._embedder))
            if vector is None:
                unknown.append(entry)
            else:
                known.append((entry, vector))
        for start in range(0, len(known), 1_000):
            _upsert(collection, known[start : start + 1_000], wanted)
        for start in range(0, len(unknown), BATCH):
            batch = unknown[start : start + BATCH]
            vectors = embed().embed_documents([e.text for e in batch])
            _upsert(collection, list(zip(batch, vectors, strict=True)), wanted)
            if progress is not None:
                progress(min(start + BATCH, len(unknown)), len(unknown))
        return len(unknown)

    def _fingerprint(self, entry: Entry) -> str:
        text = "\x1f".join((self._embedder, entry.page, entry.kind, entry.text))
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def nearest(self, vector: list[float], limit: int, kind: Kind) -> list[tuple[str, float]]:
        """(entry id, cosine similarity) of the nearest entries of a kind, best first."""
        found = self._collections[kind].query(
            query_embeddings=[vector], n_results=limit, include=["distances"]
        )
        return [
            (i, 1.0 - float(d)) for i, d in zip(found["ids"][0], found["distances"][0], strict=True)
        ]


def _open_collection(client: Any, name: str) -> Any:
    hnsw = {
        "space": "cosine",
        "ef_search": EF_SEARCH,
        **GRAPH,
        # what is not written out is inserted again at the first query of every process
        "batch_size": 50,
        "sync_threshold": 50,
    }
    collection = client.get_or_create_collection(
        name, embedding_function=None, configuration={"hnsw": hnsw}
    )
    # a collection keeps the settings it was made with
    if (collection.configuration.get("hnsw") or {}).get("ef_search") != EF_SEARCH:
        _modify(collection, configuration={"hnsw": {"ef_search": EF_SEARCH}})
    return collection


def _modify(collection: Any, **change: Any) -> None:
    """Change a collection; the store's own writing in the background may hold its database for a moment."""
    from chromadb.errors import InternalError

    for attempt in range(LOCKED_TRIES):
        try:
            collection.modify(**change)
            return
        except InternalError as error:
            if "locked" not in str(error) or attempt + 1 == LOCKED_TRIES:
                raise
            time.sleep(LOCKED_PAUSE_S)


def _upsert(
    collection: Any, pairs: Sequence[tuple[Entry, list[float]]], wanted: Mapping[str, str]
) -> None:
    collection.upsert(
        ids=[e.id for e, _ in pairs],
        embeddings=[v for _, v in pairs],
        metadatas=[
            {"page": e.page, "kind": e.kind.value, "fingerprint": wanted[e.id]} for e, _ in pairs
        ],
    )
