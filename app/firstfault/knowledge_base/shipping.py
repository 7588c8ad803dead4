"""Which vectors come with the knowledge? Made once, one byte a number, keyed by text and embedder.

`make index` (python -m firstfault.knowledge_base) writes `knowledge/index/<embedder>.npz`, so
that an installed copy embeds nothing but what was added or changed since.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from zipfile import BadZipFile

from firstfault.knowledge_base.store import Entry, text_key
from firstfault.knowledge_base.vectors import Embedder

FOLDER = "index"
STEPS = 127
"""Numbers are kept as whole steps of each vector's largest one: the error of a cosine is below 0.01."""
BATCH = 16


def index_file(knowledge: Path, embedder: str) -> Path:
    """Where the vectors of an embedder lie; endpoint names may hold slashes."""
    return knowledge / FOLDER / f"{embedder.replace('/', '_')}.npz"


def read_shipped(file: Path) -> dict[str, list[float]]:
    """Vectors by text key, normalised; empty where the file is missing or unreadable."""
    import numpy as np

    try:
        with np.load(file, allow_pickle=False) as content:
            keys, steps = content["keys"], content["vectors"].astype(np.float32)
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return {}  # nothing is lost: what is not shipped gets embedded
    if steps.ndim != 2 or len(keys) != len(steps):
        return {}
    steps /= np.maximum(np.linalg.norm(steps, axis=1, keepdims=True), 1e-9)
    return dict(zip(map(str, keys.tolist()), steps.tolist(), strict=True))


def write_shipped(file: Path, vectors: Mapping[str, Sequence[float]]) -> None:
    """Write vectors by text key, in key order, so that the same knowledge gives the same file."""
    import numpy as np

    keys = sorted(vectors)
    rows = np.array([vectors[k] for k in keys], dtype=np.float32)
    rows *= STEPS / np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-9)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        np.savez(stream, keys=np.array(keys), vectors=np.rint(rows).astype(np.int8))


def update_shipped(file: Path, entries: Sequence[Entry], embedder: Embedder) -> int:
    """Embed what the file lacks, drop what nobody uses any more; number of texts embedded."""
    known = read_shipped(file)
    texts = {text_key(e.text, embedder.name): e.text for e in entries}
    todo = [key for key in texts if key not in known]
    for start in range(0, len(todo), BATCH):
        batch = todo[start : start + BATCH]
        known.update(zip(batch, embedder.embed_documents([texts[k] for k in batch]), strict=True))
        if sys.stderr.isatty():
            print(f"\r{min(start + BATCH, len(todo))}/{len(todo)}", end="", file=sys.stderr)  # noqa: T201
    if todo or known.keys() != texts.keys():
        write_shipped(file, {key: known[key] for key in texts})
    return len(todo)
