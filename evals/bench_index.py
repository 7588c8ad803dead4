"""How long does a search among 100,000 passages take? Vectors embedded and by URL, and shared words.

Vectors are seeded and lie in clusters, as those of texts do; passages are words drawn as often as the
pages use them.
"""

from __future__ import annotations

import os
import random
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from heapq import nlargest
from pathlib import Path

from firstfault.knowledge_base.lexical import OTHER, PASSAGE_WEIGHTS, TAGS, TITLE, build_postings
from firstfault.knowledge_base.passages import cut_passages
from firstfault.knowledge_base.store import Entry, Kind, VectorStore, open_client, text_key
from firstfault.knowledge_base.tokens import tokenize
from firstfault.knowledge_base.vectors import Embedder
from firstfault.paths import knowledge_folder
from firstfault_tools.knowledge.page import load_pages

COUNT = 100_000
DIMENSION = 384
QUERIES = 200
CHROMA_URL = "FIRSTFAULT_CHROMA_URL"


def index_rows(scratch: Path, count: int = COUNT) -> list[str]:
    """Rows of the table: p50 and p95 of a search, and the time to build."""
    rows = [_lexical_row(count)]
    os.environ.pop(CHROMA_URL, None)
    rows.append(_vector_row("vectors, Chroma embedded", scratch / "embedded", count))
    with chroma_server(scratch / "server") as url:
        os.environ[CHROMA_URL] = url
        try:
            rows.append(_vector_row("vectors, Chroma server by URL", scratch / "unused", count))
        finally:
            os.environ.pop(CHROMA_URL)
    return rows


def _vector_row(name: str, folder: Path, count: int) -> str:
    import numpy as np

    dice = np.random.default_rng(7)
    centres = dice.normal(size=(400, DIMENSION))
    vectors = centres[dice.integers(0, 400, count)] + 0.6 * dice.normal(size=(count, DIMENSION))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    entries = [Entry(f"p{i}", f"page{i // 8}", Kind.PASSAGE, f"text {i}") for i in range(count)]
    ready = {text_key(e.text, "bench"): v.tolist() for e, v in zip(entries, vectors, strict=True)}
    begin = time.perf_counter()
    store = VectorStore(open_client(folder), "bench")
    store.update(entries, _no_embedder, lambda: ready)
    built = time.perf_counter() - begin
    asked = [
        (vectors[i] + 0.02 * dice.normal(size=DIMENSION)).tolist()
        for i in dice.integers(0, count, QUERIES)
    ]
    return _row(name, [partial(store.nearest, v, 10, Kind.PASSAGE) for v in asked], built)


def _no_embedder() -> Embedder:
    raise AssertionError("every vector is given")


def _lexical_row(count: int) -> str:
    words = [
        token
        for passage in cut_passages(load_pages(knowledge_folder() / "pages", None).values())
        for token in tokenize(passage.text)
    ]
    dice = random.Random(7)
    documents = [
        {
            TITLE: dice.choices(words, k=6),
            TAGS: dice.choices(words, k=3),
            OTHER: dice.choices(words, k=90),
        }
        for _ in range(count)
    ]
    begin = time.perf_counter()
    postings = build_postings(documents, PASSAGE_WEIGHTS)
    built = time.perf_counter() - begin

    def ask(query: dict[str, float]) -> None:
        scores = postings.score(query)
        nlargest(10, scores.items(), key=lambda item: item[1])

    queries = [dict.fromkeys(dice.choices(words, k=8), 1.0) for _ in range(QUERIES)]
    return _row("shared words", [partial(ask, q) for q in queries], built)


def _row(name: str, calls: list[Callable[[], object]], built: float) -> str:
    calls[0]()
    times = []
    for call in calls:
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1000)
    p95 = statistics.quantiles(times, n=20)[-1]
    row = f"| {name} | {statistics.median(times):.1f} | {p95:.1f} | {built:.0f} |"
    print(row, flush=True)
    return row


@contextmanager
def chroma_server(folder: Path) -> Iterator[str]:
    """A Chroma server on a free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = Path(sys.executable).with_name("chroma")
    process = subprocess.Popen(
        [str(program), "run", "--path", str(folder), "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(150):
            try:
                urllib.request.urlopen(f"{url}/api/v2/heartbeat", timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        else:
            raise RuntimeError("the Chroma server did not start")
        yield url
    finally:
        process.terminate()
        process.wait(10)
