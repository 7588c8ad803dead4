from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from firstfault.knowledge_base.search import SearchIndex, open_index


class HashEmbedder:
    """Vectors of word hashes: deterministic, quick, and alike for texts that share words."""

    name = "hash-of-words"

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.texts += texts
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        vector = [0.01] * 64
        for word in text.lower().split():
            vector[hashlib.sha256(word.encode()).digest()[0] % 64] += 1.0
        length = sum(v * v for v in vector) ** 0.5
        return [v / length for v in vector]


@pytest.fixture
def hash_embedder() -> HashEmbedder:
    return HashEmbedder()


@pytest.fixture(scope="session")
def lexical_index(tmp_path_factory: pytest.TempPathFactory) -> SearchIndex:
    """The real knowledge, searched by words and signatures alone, with a cache of its own."""
    folder: Path = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRSTFAULT_CACHE", str(folder))
        return open_index(vectors=False)
