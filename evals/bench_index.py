"""How long does a search among 100,000 passages take, and what do approximate neighbours miss?

python -m evals.bench_index [--folder SCRATCH] [--count N]

Passages are words drawn as often as the pages use them, eight to a page. Vectors are mixtures of the
shipped ones, since even clouds are easier than texts; questions and their vectors are the real ones of
the retrieval eval. Searches are timed warm; the first one of a process stands apart. CPU is that of this
process and of the Chroma server, if any, per search.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from evals.retrieval.run import load_questions

from firstfault.knowledge_base.lexical import OTHER, PASSAGE_WEIGHTS, TAGS, TITLE, build_postings
from firstfault.knowledge_base.passages import Passage, cut_passages
from firstfault.knowledge_base.query import read_query
from firstfault.knowledge_base.search import POOL, Method, SearchIndex, open_index
from firstfault.knowledge_base.shipping import index_file, read_shipped, write_shipped
from firstfault.knowledge_base.store import Kind, VectorStore, open_embedded, text_key
from firstfault.knowledge_base.tokens import tokenize
from firstfault.knowledge_base.vectors import WheelEmbedder, load_embedder
from firstfault.paths import knowledge_folder
from firstfault_tools.knowledge.page import load_pages

COUNT = 100_000
QUERIES = 200
HEADINGS = 8
"""Passages a page."""
CHROMA_URL = "FIRSTFAULT_CHROMA_URL"
TABLE = "| what | p50 ms | p95 ms | built in s |\n| --- | ---: | ---: | ---: |"
MORE = "| what | mean CPU ms | first ms | recall@10 | recall@150 |\n| --- | ---: | ---: | ---: | ---: |"

_FIRST = (
    "import sys; from pathlib import Path; from evals.bench_index import time_first; "
    "print(time_first(Path(sys.argv[1])))"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One way of searching: times in ms, recall against the exact neighbours where it has any."""

    name: str
    times: Sequence[float]
    cpu: float
    built: float | None = None
    first: float | None = None
    recalls: tuple[float, float] | None = None

    def show_times(self) -> str:
        """Row of TABLE."""
        p95 = statistics.quantiles(self.times, n=20)[-1]
        built = "" if self.built is None else f"{self.built:.0f}"
        return f"| {self.name} | {statistics.median(self.times):.1f} | {p95:.1f} | {built} |"

    def show_more(self) -> str:
        """Row of MORE."""
        first = "" if self.first is None else f"{self.first:.0f}"
        recalls = [f"{r:.4f}" for r in self.recalls] if self.recalls else ["", ""]
        return f"| {self.name} | {self.cpu:.1f} | {first} | {' | '.join(recalls)} |"


def index_rows(scratch: Path, count: int = COUNT) -> list[str]:
    """Rows of TABLE, then a table of its own with CPU time, first search and recall."""
    begin = os.getloadavg()[0]
    rows = [_time_words(count)]
    os.environ.pop(CHROMA_URL, None)
    index = _make_index(scratch, count)
    texts = [q.text for q in load_questions()][:QUERIES]
    embedder = load_embedder()
    assert embedder is not None, "the embedder's wheel is installed"
    asked = [read_query(text).text for text in texts]
    rows.append(_time("embedding the question", [partial(embedder.embed_query, t) for t in asked]))
    vectors = [embedder.embed_query(text) for text in asked]
    exact = _find_exact(index, vectors)
    rows.append(_time_vectors("vectors, Chroma embedded", index, vectors, exact))
    rows += _time_whole(index, texts)
    folder = scratch / "server"
    with chroma_server(folder) as server:
        os.environ[CHROMA_URL] = server.url
        served = replace(index)
        built = _build(served)
        os.environ.pop(CHROMA_URL)
    with chroma_server(folder) as server:
        os.environ[CHROMA_URL] = server.url
        try:
            row = _time_vectors(
                "vectors, Chroma server by URL", replace(index), vectors, exact, server.pid
            )
        finally:
            os.environ.pop(CHROMA_URL)
    rows.append(replace(row, built=built))
    load = f"Load average {begin:.1f} at the start, {os.getloadavg()[0]:.1f} at the end. "
    note = (
        f"{load}Vector rows ask for the {POOL} nearest passages, as a search does; a whole search asks "
        "for as many phrases too, and shows 8 pages. First: open the built index and ask once."
    )
    return [*(row.show_times() for row in rows), "", note, "", MORE, *(r.show_more() for r in rows)]


def _make_index(scratch: Path, count: int) -> SearchIndex:
    """Index of made passages below `scratch`; their vectors lie ready, one byte a number."""
    import numpy as np

    real = open_index(vectors=False)
    words = [word for passage in real.passages for word in passage.text.split()]
    dice = random.Random(7)
    passages = [
        Passage(
            f"page-{page}#{part}", f"page-{page}", title, f"{part}", " ".join(dice.choices(words, k=90)),
            "oom", ("any",), (), None,
        )
        for page in range(count // HEADINGS)
        for title in [" ".join(dice.choices(words, k=5))]
        for part in range(HEADINGS)
    ]  # fmt: skip
    index = replace(
        real,
        passages=tuple(passages),
        store_folder=scratch / "embedded",
        lexical_file=scratch / "lexical.pack",
        lexical_identity="",
        shipped_folder=scratch,
    )
    name = WheelEmbedder.name
    known = np.array(list(read_shipped(index_file(knowledge_folder(), name)).values()))
    rng = np.random.default_rng(7)
    made = {}
    for entry in index.entries:
        chosen = known[rng.integers(0, len(known), 3)]
        mixed = rng.dirichlet((1, 1, 1)) @ chosen + 0.015 * rng.normal(size=known.shape[1])
        made[text_key(entry.text, name)] = mixed
    write_shipped(index_file(scratch, name), made)
    return index


def _build(index: SearchIndex) -> float:
    begin = time.perf_counter()
    assert index.vectors is not None, "the embedder's wheel is installed"
    return time.perf_counter() - begin


def _find_exact(index: SearchIndex, vectors: Sequence[Sequence[float]]) -> list[list[str]]:
    """Ids of the POOL nearest passages of each vector, compared with every passage."""
    import numpy as np

    ready = read_shipped(index_file(index.shipped_folder or Path(), WheelEmbedder.name))
    entries = [e for e in index.entries if e.kind is Kind.PASSAGE]
    rows = np.array(
        [ready[text_key(e.text, WheelEmbedder.name)] for e in entries], dtype=np.float32
    )
    return [
        [entries[n].id for n in np.argsort(-(rows @ np.array(v, dtype=np.float32)))[:POOL]]
        for v in vectors
    ]


def _time_vectors(
    name: str,
    index: SearchIndex,
    vectors: Sequence[list[float]],
    exact: Sequence[Sequence[str]],
    server: int | None = None,
) -> Row:
    built = _build(index)
    store = index.vectors
    assert store is not None
    folder = index.store_folder or Path()
    first = float(
        subprocess.run(
            [sys.executable, "-c", _FIRST, str(folder)], check=True, capture_output=True, text=True
        ).stdout
    )
    row = _time(name, [partial(store.nearest, v, POOL, Kind.PASSAGE) for v in vectors], server)
    found = [[i for i, _ in store.nearest(v, POOL, Kind.PASSAGE)] for v in vectors]
    recalls = (_recall(found, exact, 10), _recall(found, exact, POOL))
    return replace(row, built=built, first=first, recalls=recalls)


def time_first(folder: Path) -> float:
    """ms to open a built store and ask it once; imports are not counted."""
    import chromadb  # noqa: F401

    begin = time.perf_counter()
    store = VectorStore(open_embedded(folder), WheelEmbedder.name)
    store.nearest([1.0] * 384, POOL, Kind.PASSAGE)
    return (time.perf_counter() - begin) * 1000


def _recall(found: Sequence[Sequence[str]], exact: Sequence[Sequence[str]], depth: int) -> float:
    """Mean share of the `depth` exact neighbours among the first `depth` found."""
    return statistics.mean(
        len({*near[:depth]} & {*wanted[:depth]}) / depth
        for near, wanted in zip(found, exact, strict=True)
    )


def _time_whole(index: SearchIndex, texts: Sequence[str]) -> list[Row]:
    """Whole searches: by words, and by all with and without the time to embed the question."""
    begin = time.perf_counter()
    _ = index.lexical
    built = time.perf_counter() - begin
    words = _time(
        "whole search, words only", [partial(index.search, t, 8, Method.LEXICAL) for t in texts]
    )
    whole = _time("whole search, words and vectors", [partial(index.search, t) for t in texts])
    embedder = load_embedder()
    assert embedder is not None
    known = {text: embedder.embed_query(text) for text in (read_query(t).text for t in texts)}
    patched: Any = embedder
    patched.embed_query = known.__getitem__
    try:
        apart = _time("- less embedding the question", [partial(index.search, t) for t in texts])
    finally:
        del patched.embed_query
    return [replace(words, built=built), whole, apart]


def _time_words(count: int) -> Row:
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

    queries = [dict.fromkeys(dice.choices(words, k=8), 1.0) for _ in range(QUERIES)]
    row = _time("shared words", [partial(postings.best, q, 10) for q in queries])
    return replace(row, built=built)


def _time(name: str, calls: Sequence[Callable[[], object]], server: int | None = None) -> Row:
    calls[0]()
    times = []
    used = _cpu_seconds(server)
    for call in calls:
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1000)
    cpu = (_cpu_seconds(server) - used) * 1000 / len(calls)
    row = Row(name, times, cpu)
    print(row.show_times(), f"CPU {cpu:.1f}, load {os.getloadavg()[0]:.1f}", flush=True)
    return row


def _cpu_seconds(server: int | None) -> float:
    """Of this process and, where the system tells, of the server."""
    own = time.process_time()
    file = Path(f"/proc/{server}/stat")
    if server is None or not file.is_file():
        return own
    user, system = file.read_text(encoding="ascii").rpartition(")")[2].split()[11:13]
    return own + (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Server:
    """A running Chroma server."""

    url: str
    pid: int


@contextmanager
def chroma_server(folder: Path) -> Iterator[Server]:
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
        yield Server(url, process.pid)
    finally:
        process.terminate()
        process.wait(10)


def main() -> None:
    """Measure and print; nothing is written but below the scratch folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="scratch space; a temporary folder otherwise")
    parser.add_argument("--count", type=int, default=COUNT)
    chosen = parser.parse_args()
    if chosen.folder is not None:
        chosen.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        print("\n".join([TABLE, *index_rows(Path(name), chosen.count)]))


if __name__ == "__main__":
    main()
