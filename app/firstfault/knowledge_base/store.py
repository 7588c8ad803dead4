"""Where do the vectors live? One Chroma collection, kept by content hash, embedded or by URL."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from firstfault.errors import CannotAnalyse
from firstfault.knowledge_base.passages import Passage
from firstfault.knowledge_base.vectors import Embedder

COLLECTION = "firstfault-passages"
BATCH = 64
Progress = Callable[[int, int], None]


def fingerprint(passage: Passage, embedder: Embedder) -> str:
    """Hash of everything the vector and its metadata depend on."""
    text = "\x1f".join(
        (embedder.name, passage.id, passage.indexed, passage.category, *passage.frameworks)
    )
    return hashlib.sha256(text.encode()).hexdigest()


def open_client(folder: Path) -> Any:
    """Chroma client: embedded below `folder`, or the server named by FIRSTFAULT_CHROMA_URL."""
    import chromadb
    from chromadb.config import Settings

    settings = Settings(anonymized_telemetry=False)
    url = os.environ.get("FIRSTFAULT_CHROMA_URL")
    if not url:
        folder.mkdir(parents=True, exist_ok=True)
        return chromadb.PersistentClient(path=str(folder), settings=settings)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CannotAnalyse(f"FIRSTFAULT_CHROMA_URL={url}: expected http(s)://host[:port]")
    return chromadb.HttpClient(
        host=parts.hostname,
        port=parts.port or (443 if parts.scheme == "https" else 8000),
        ssl=parts.scheme == "https",
        settings=settings,
    )


class VectorStore:
    """Vectors of all passages, brought up to date when opened."""

    def __init__(self, client: Any, embedder: Embedder) -> None:
        self._embedder = embedder
        self._collection = client.get_or_create_collection(
            COLLECTION,
            embedding_function=None,
            configuration={"hnsw": {"space": "cosine", "ef_search": 200}},
        )

    def update(self, passages: Sequence[Passage], progress: Progress | None = None) -> int:
        """Embed what is new or changed, delete what is gone; number of passages embedded."""
        known = self._collection.get(include=["metadatas"])
        have = {
            i: (m or {}).get("fingerprint")
            for i, m in zip(known["ids"], known["metadatas"] or [], strict=True)
        }
        wanted = {p.id: fingerprint(p, self._embedder) for p in passages}
        stale = [i for i in have if i not in wanted]
        if stale:
            self._collection.delete(ids=stale)
        todo = [p for p in passages if have.get(p.id) != wanted[p.id]]
        for start in range(0, len(todo), BATCH):
            batch = todo[start : start + BATCH]
            self._collection.upsert(
                ids=[p.id for p in batch],
                embeddings=self._embedder.embed_documents([p.indexed for p in batch]),
                documents=[p.text for p in batch],
                metadatas=[
                    {"page": p.page, "category": p.category, "fingerprint": wanted[p.id]}
                    for p in batch
                ],
            )
            if progress is not None:
                progress(min(start + BATCH, len(todo)), len(todo))
        return len(todo)

    def nearest(
        self, query: str, limit: int, category: str | None = None
    ) -> list[tuple[str, float]]:
        """(passage id, cosine similarity) of the nearest passages, best first."""
        found = self._collection.query(
            query_embeddings=[self._embedder.embed_query(query)],
            n_results=limit,
            where={"category": category} if category else None,
            include=["distances"],
        )
        return [
            (i, 1.0 - float(d)) for i, d in zip(found["ids"][0], found["distances"][0], strict=True)
        ]
