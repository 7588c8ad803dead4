from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from firstfault.knowledge_base.snapshot import DAYS_KEPT, name_state, open_vectors
from firstfault.knowledge_base.store import Entry, Kind

ENTRIES = [Entry(f"p{i}#S", f"p{i}", Kind.PASSAGE, f"text {i}") for i in range(40)]
CHILD = """
import sys
from pathlib import Path
from firstfault.knowledge_base.snapshot import open_vectors
from firstfault.knowledge_base.store import Entry, Kind, text_key

folder, mine = Path(sys.argv[1]), int(sys.argv[2])
many = 300 + 200 * mine
entries = [Entry(f"p{i}#S", f"p{i}", Kind.PASSAGE, f"text {i} {mine}") for i in range(many)]
ready = {text_key(e.text, "v"): [float(1 + (i * 7 + k) % 13) for k in range(64)] for i, e in enumerate(entries)}
for _ in range(3):
    store = open_vectors(folder, "v", entries, lambda: None, lambda: ready)
    assert len(store.nearest([1.0] * 64, 5, Kind.PASSAGE)) == 5
"""


@pytest.fixture(autouse=True)
def embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIRSTFAULT_CHROMA_URL", raising=False)


def open_it(folder: Path, entries: list[Entry], embedder: Any) -> Any:
    return open_vectors(folder, embedder.name, entries, lambda: embedder, dict)


def test_each_state_has_its_folder_and_is_written_once(tmp_path: Path, hash_embedder: Any) -> None:
    open_it(tmp_path, ENTRIES, hash_embedder)
    first = tmp_path / name_state(ENTRIES, hash_embedder.name)
    hash_embedder.texts.clear()
    open_it(tmp_path, ENTRIES, hash_embedder)
    assert hash_embedder.texts == []
    more = [*ENTRIES[1:], Entry("q#S", "q", Kind.PASSAGE, "a new text")]
    store = open_it(tmp_path, more, hash_embedder)
    assert hash_embedder.texts == ["a new text"], "the others come from the snapshot before"
    near = store.nearest(hash_embedder.embed_query("a new text"), 50, Kind.PASSAGE)
    assert {i for i, _ in near} == {e.id for e in more}
    assert {p.name for p in tmp_path.iterdir() if p.is_dir()} == {
        first.name,
        name_state(more, hash_embedder.name),
    }


def test_what_was_not_finished_is_not_opened(tmp_path: Path, hash_embedder: Any) -> None:
    class Broken:
        name = hash_embedder.name

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        open_it(tmp_path, ENTRIES, Broken())
    assert [p.name for p in tmp_path.iterdir()] == ["writing.lock"]
    assert (
        open_it(tmp_path, ENTRIES, hash_embedder).nearest(
            hash_embedder.embed_query("text 7"), 1, Kind.PASSAGE
        )[0][0]
        == ENTRIES[7].id
    )


def test_a_folder_nobody_opens_goes(tmp_path: Path, hash_embedder: Any) -> None:
    open_it(tmp_path, ENTRIES[:2], hash_embedder)
    old = tmp_path / name_state(ENTRIES[:2], hash_embedder.name)
    past = time.time() - (DAYS_KEPT + 1) * 86_400
    os.utime(old, (past, past))
    open_it(tmp_path, ENTRIES[:3], hash_embedder)
    assert not old.exists()


def test_processes_that_open_different_states_at_once_live(tmp_path: Path) -> None:
    """Two that wrote into one folder left a graph that killed whoever opened it later."""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), str(n % 3)],
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for n in range(6)
    ]
    for child in children:
        _, said = child.communicate(timeout=300)
        assert child.returncode == 0, said.decode()[-800:]
