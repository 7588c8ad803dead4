"""Logs in S3 and Google Cloud Storage, read over the wire from servers on the loopback."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from tests.app.intake.stores import BUCKET, Asked, GcsStore, S3Store, Store

from firstfault.errors import InputUnreadable
from firstfault.intake import objects, ranges, remote
from firstfault.intake.objects import RemotePath
from firstfault.intake.remote import collect_sources
from firstfault.workspace import Workspace
from firstfault_tools.log.executors import Workers

LINES = b"".join(b"[rank1]: step %d loss: 2.0\n" % i for i in range(20_000))
END = b"[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
LOG = LINES + END
ROOT = Path(__file__).parents[3]


@pytest.fixture(params=["s3", "gs"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    fsspec = pytest.importorskip("fsspec")
    if request.param == "s3":
        pytest.importorskip("s3fs")
        pytest.importorskip("moto")
    else:
        pytest.importorskip("gcsfs")
        import gcsfs.retry

        class Hurried:
            """asyncio whose sleeps are short."""

            async def sleep(self, seconds: float) -> None:
                await gcsfs_asyncio.sleep(0.001)

        gcsfs_asyncio = gcsfs.retry.asyncio
        monkeypatch.setattr(gcsfs.retry, "asyncio", Hurried())
    for name in list(os.environ):
        if name.startswith(("AWS_", "FSSPEC_", "GOOGLE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("FSSPEC_GS", '{"token": "anon"}')
    monkeypatch.setitem(fsspec.config.conf, "gs", {"token": "anon"})
    opened: Store = S3Store() if request.param == "s3" else GcsStore()
    monkeypatch.setenv("AWS_ENDPOINT_URL", opened.address)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", opened.address)
    forget_stores()
    opened.open_client()
    yield opened
    forget_stores()
    opened.close()


def forget_stores() -> None:
    """Connections and listings of earlier tests."""
    for filesystem in objects._stores.values():
        type(filesystem).clear_instance_cache()
    objects._stores.clear()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs of half a megabyte are read in place, in many ranges."""
    monkeypatch.setattr(remote, "COPY_BYTES", 100_000)
    monkeypatch.setattr(ranges, "FIRST_BYTES", 16_384)
    monkeypatch.setattr(ranges, "BLOCK_BYTES", 65_536)


def address(store: Store, key: str) -> str:
    return f"{store.scheme}://{BUCKET}/{key}"


def test_single_object(store: Store, tmp_path: Path) -> None:
    store.put("run/rank_1.log", LOG)
    found = collect_sources([address(store, "run/rank_1.log")], tmp_path)
    assert [a.name for a in found.artefacts] == [f"{BUCKET}/run/rank_1.log"]
    assert found.artefacts[0].path.read_bytes() == LOG


def test_glob_and_folder_of_many(store: Store, tmp_path: Path) -> None:
    """64 objects come from a folder, in order, and a glob takes what it means."""
    for rank in range(64):
        store.put(f"run/rank_{rank:02}.log", b"[rank%d]: step 1 loss: 2.0\n" % rank)
    store.put("other/a.log", b"not asked for\n")
    names = [f"{BUCKET}/run/rank_{rank:02}.log" for rank in range(64)]
    for source in ("run", "run/", "run/rank_*.log", "run/**"):
        forget_stores()
        found = collect_sources([address(store, source)], tmp_path)
        assert [a.name for a in found.artefacts] == names, source
    one = collect_sources([address(store, "run/rank_1?.log")], tmp_path)
    assert [a.name for a in one.artefacts] == names[10:20]
    assert one.artefacts[3].path.read_bytes() == b"[rank13]: step 1 loss: 2.0\n"


def test_many_objects_are_fetched_at_once(store: Store, tmp_path: Path) -> None:
    """No answer comes before eight are asked for: one after the other would never end well."""
    for rank in range(64):
        store.put(f"run/rank_{rank:02}.log", b"[rank%d]: step 1 loss: 2.0\n" % rank)
    together = threading.Barrier(8)

    def wait(asked: Asked) -> None:
        together.wait(timeout=20)

    store.wire.breaks = wait
    found = collect_sources([address(store, "run")], tmp_path)
    assert len(found.artefacts) == len(store.wire.reads) == 64
    assert found.skipped == ()


def test_command_reads_the_store(store: Store) -> None:
    """As it is typed, in a process of its own."""
    store.put("run/rank_0.log", LINES.replace(b"[rank1]", b"[rank0]"))
    store.put("run/rank_1.log", LOG)
    done = subprocess.run(
        [sys.executable, "-c", "from firstfault.cli import main; main()", "diagnose", address(store, "run/*.log"), "--json", "--no-llm"],
        capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'app'}:{ROOT / 'tools'}"},
    )  # fmt: skip
    said = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (1, "")
    assert said["first_failing_rank"] == 1
    assert said["input"]["files"] == [f"{BUCKET}/run/rank_{rank}.log" for rank in range(2)]


@pytest.mark.parametrize("copied", [True, False])
def test_packed_objects_are_unpacked(
    store: Store, tmp_path: Path, copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not copied:
        monkeypatch.setattr(remote, "COPY_BYTES", 100)
    store.put("run/a.log.gz", gzip.compress(LOG))
    store.put("run/b.log.zst", zstandard.ZstdCompressor().compress(LOG))
    found = collect_sources([address(store, "run")], tmp_path)
    assert [a.name for a in found.artefacts] == [f"{BUCKET}/run/a.log", f"{BUCKET}/run/b.log"]
    assert [a.path.read_bytes() for a in found.artefacts] == [LOG, LOG]


@pytest.mark.parametrize("store", ["gs"], indirect=True)
def test_object_stored_with_an_encoding(store: GcsStore, tmp_path: Path) -> None:
    """Google unpacks such objects on the way unless the stored bytes are asked for."""
    store.put("run/a.log", gzip.compress(LOG), encoding="gzip")
    found = collect_sources([address(store, "run/a.log")], tmp_path)
    assert found.artefacts[0].path.read_bytes() == LOG


def test_diagnosis_in_place_is_that_of_the_file(
    store: Store, small_blocks: None, tmp_path: Path
) -> None:
    """Read in ranges where it lies: verdict, line and quotes of the local file; the receipt names it."""
    store.put("run/rank_1.log", LOG)
    workspace = Workspace(cache=None, spool=tmp_path / "spool")
    collection = collect_sources([address(store, "run/rank_1.log")], workspace.spool)
    assert isinstance(collection.artefacts[0].path, RemotePath)
    local = tmp_path / "run" / "rank_1.log"
    local.parent.mkdir()
    local.write_bytes(LOG)
    found = workspace.diagnose_collection(collection, "", Workers(1)).to_json()
    expected = workspace.diagnose_paths([local], "", Workers(1)).to_json()
    assert found["citations"][0]["quote"] == expected["citations"][0]["quote"]
    assert found["first_line"]["line"] == expected["first_line"]["line"] == 20_001
    assert found["root_cause"] == expected["root_cause"]
    assert found["input"]["files"] == [f"{BUCKET}/run/rank_1.log"]
    assert store.wire.read_bytes() <= 65_536


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("BUCKET/none.log", "no such object"),
        ("BUCKET/none/", "no such object"),
        ("BUCKET/none_*.log", "no object matches"),
        ("absent/run.log", "no such bucket: absent"),
        ("absent/run/*.log", "no such bucket: absent"),
    ],
)
def test_what_is_missing_is_said(store: Store, tmp_path: Path, source: str, said: str) -> None:
    store.put("run/a.log", LOG)
    url = f"{store.scheme}://{source.replace('BUCKET', BUCKET)}"
    with pytest.raises(InputUnreadable, match=said) as caught:
        collect_sources([url], tmp_path)
    assert url in str(caught.value)


def test_rest_is_read_where_one_is_missing(store: Store, tmp_path: Path) -> None:
    store.put("run/a.log", LOG)
    found = collect_sources([address(store, "run/a.log"), address(store, "run/b.log")], tmp_path)
    assert [a.name for a in found.artefacts] == [f"{BUCKET}/run/a.log"]
    assert [(s.what, s.why) for s in found.skipped] == [
        (address(store, "run/b.log"), "no such object")
    ]


@pytest.mark.parametrize("source", ["run/a.log", "run/*.log"])
def test_no_credentials(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    store.put("run/a.log", LOG)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    if isinstance(store, GcsStore):
        store.secured = True
    hint = {"s3": "set AWS_PROFILE", "gs": "gcloud auth application-default login"}[store.scheme]
    with pytest.raises(InputUnreadable, match="access denied") as caught:
        collect_sources([address(store, source)], tmp_path)
    assert hint in str(caught.value)


@pytest.mark.parametrize("fate", ["500", "cut"])
def test_passing_trouble_is_outlived(
    store: Store, small_blocks: None, tmp_path: Path, fate: str
) -> None:
    """The server fails once in the middle of a read: nobody notices."""
    store.put("run/rank_1.log", LOG)
    collection = collect_sources([address(store, "run/rank_1.log")], tmp_path)
    before = len(store.wire.reads)
    store.wire.breaks = lambda asked: fate if asked.number == before + 3 else None
    assert collection.artefacts[0].path.read_bytes() == LOG
    broken = store.wire.reads[before + 3].range
    assert sum(asked.range == broken for asked in store.wire.reads[before:]) == 2


@pytest.mark.parametrize("fate", ["500", "cut"])
def test_lasting_trouble_is_named(
    store: Store, small_blocks: None, tmp_path: Path, fate: str
) -> None:
    """Half of one log cannot be read: the receipt names it, and the other one is diagnosed."""
    store.put("run/rank_0.log", LINES)
    store.put("run/rank_1.log", LOG)
    workspace = Workspace(cache=None, spool=tmp_path / "spool")
    collection = collect_sources([address(store, "run")], workspace.spool)

    def breaks(asked: Asked) -> str | None:
        first = int(asked.range.removeprefix("bytes=").split("-")[0])
        return fate if "rank_0" in asked.key and first > 200_000 else None

    store.wire.breaks = breaks
    diagnosis = workspace.diagnose_collection(collection, "", Workers(1))
    assert diagnosis.first_failing_rank == 1
    said = {s.what: s.why for s in diagnosis.input.skipped}
    assert "cannot be read" in said[f"{BUCKET}/run/rank_0.log"]
    store.wire.breaks = lambda asked: fate
    forget_stores()
    with pytest.raises(InputUnreadable, match="cannot be read"):
        collect_sources([address(store, "run")], tmp_path)


@pytest.mark.parametrize("change", ["overwritten", "deleted", "grown"])
def test_change_between_plan_and_read(
    store: Store, small_blocks: None, tmp_path: Path, change: str
) -> None:
    """Never a mixture of two versions: the log is named as changed."""
    store.put("run/rank_0.log", LINES)
    store.put("run/rank_1.log", LOG)
    workspace = Workspace(cache=None, spool=tmp_path / "spool")
    collection = collect_sources([address(store, "run")], workspace.spool)
    if change == "deleted":
        store.delete("run/rank_0.log")
    else:
        store.put("run/rank_0.log", LINES[::-1] if change == "overwritten" else LINES + LINES)
    diagnosis = workspace.diagnose_collection(collection, "", Workers(1))
    said = {s.what: s.why for s in diagnosis.input.skipped}
    assert "changed since it was listed" in said[f"{BUCKET}/run/rank_0.log"]
    assert diagnosis.first_failing_rank == 1


def test_change_in_the_middle_of_a_read(store: Store, small_blocks: None, tmp_path: Path) -> None:
    store.put("run/rank_1.log", LOG)
    collection = collect_sources([address(store, "run/rank_1.log")], tmp_path)
    with collection.artefacts[0].path.open("rb") as stream:
        assert stream.read(100_000) == LOG[:100_000]
        store.put("run/rank_1.log", LOG[::-1])
        with pytest.raises(OSError, match="changed since it was listed"):
            stream.read()


def test_small_log_that_changes_is_read_as_it_is_now(store: Store, tmp_path: Path) -> None:
    """Listed, then written to before it was copied: its new version is copied."""
    store.put("run/rank_1.log", LINES)
    listed = remote._expand(address(store, "run"))
    store.put("run/rank_1.log", LOG)
    placed = remote._place_all(listed, tmp_path, False)
    assert [p[1].read_bytes() for p in placed if isinstance(p, tuple)] == [LOG]


def test_missing_package_names_the_extra(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = importlib.import_module("fsspec.registry")._registry
    forget_stores()
    library, extra = {"s3": ("s3fs", "s3"), "gs": ("gcsfs", "gcs")}[store.scheme]
    for name in [library, *(m for m in sys.modules if m.startswith(f"{library}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("s3", "gs"):
        monkeypatch.delitem(known, name, raising=False)
    with pytest.raises(InputUnreadable) as caught:
        collect_sources([address(store, "run/a.log")], tmp_path)
    assert f"pip install 'firstfault[{extra}]'" in str(caught.value)


def test_extras_named_in_errors_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for package, extra in objects._EXTRA.values():
        assert any(needed.startswith(package) for needed in extras[extra])
        assert any(needed.startswith(package) for needed in extras["cluster"])


_GLOB = """
import json, sys
from pathlib import Path
from firstfault.intake.remote import collect_sources
assert collect_sources([sys.argv[1]], Path(sys.argv[2])).artefacts
print(json.dumps(sorted({m.split(".")[0] for m in sys.modules})))
"""


def test_local_globs_load_no_store(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("step 1\n")
    modules = run_program(_GLOB, str(tmp_path / "*.log"), str(tmp_path / "spool"))
    assert {"fsspec", "s3fs", "gcsfs", "aiohttp", "botocore"}.isdisjoint(modules)


_READ = """
import json, resource, sys
from pathlib import Path
from firstfault.intake.remote import collect_sources
from firstfault_tools.log.blocks import read_blocks
(artefact,) = collect_sources([sys.argv[1]], Path(sys.argv[2])).artefacts
count = 0
before = 0
for offset, block in read_blocks(artefact.path):
    count += block.count(b"\\n")
    before = before or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"lines": count, "grown": (after - before) * 1024, "kind": type(artefact.path).__name__}))
"""


def run_program(program: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'app'}:{ROOT / 'tools'}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_memory_does_not_grow_with_the_object(store: Store, tmp_path: Path) -> None:
    """A hundred megabytes pass through some blocks."""
    line = b"[rank0]: step 17 loss: 2.0 " + b"x" * 172 + b"\n"
    store.put("run/big.log", line * 500_000)
    found = run_program(_READ, address(store, "run/big.log"), str(tmp_path))
    assert found["kind"] == "RemotePath"
    assert found["lines"] == 500_000
    assert found["grown"] < 40_000_000
    assert store.wire.read_bytes() <= ranges.BLOCK_BYTES


@pytest.fixture
def cluster(store: Store) -> Iterator[Any]:
    """Workers that start after the store, so that they inherit its address."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None,
    ) as opened:  # fmt: skip
        yield opened


@pytest.mark.slow
def test_workers_of_a_cluster_read_the_store(
    store: Store, cluster: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The workers fetch the logs themselves: nothing has to be scanned here."""
    for rank in range(4):
        lines = LOG if rank == 1 else LINES
        store.put(f"run/rank_{rank}.log", lines.replace(b"[rank1]", b"[rank%d]" % rank))
    store.put("run/extra.log.gz", gzip.compress(b"[rank4]: step 3 loss: 2.0\n"))
    workspace = Workspace(cache=None, spool=tmp_path / "spool")
    here = collect_sources([address(store, "run")], workspace.spool)
    expected = workspace.diagnose_collection(here, "", Workers(1)).to_json()
    there = collect_sources([address(store, "run")], workspace.spool, in_place=True)
    kinds = [type(a.path).__name__ for a in there.artefacts]
    assert kinds.count("RemotePath") == 4
    before = len(store.wire.reads)
    workers = Workers(cluster=cluster.scheduler_address)
    found = workspace.diagnose_collection(there, "", workers).to_json()
    # of what lies in a store its extent is not measured: that reads the logs once more
    assert {**found, "extent": None} == {**expected, "extent": None}
    assert len(store.wire.reads) >= before + 4
    assert "scanned here" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_what_workers_cannot_see_is_read_here(
    store: Store, cluster: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker without credentials, as without a shared folder: the command reads in its place."""
    store.put("run/rank_1.log", LOG)
    workspace = Workspace(cache=None, spool=tmp_path / "spool")
    there = collect_sources([address(store, "run")], workspace.spool, in_place=True)

    def forget_credentials() -> None:
        import os

        for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"):
            del os.environ[name]

    with cluster.get_client() as client:
        client.run(forget_credentials)
    workers = Workers(cluster=cluster.scheduler_address)
    diagnosis = workspace.diagnose_collection(there, "", workers)
    assert diagnosis.first_failing_rank == 1
    assert diagnosis.input.skipped == ()
    assert "what workers cannot read is scanned here" in caplog.text


def test_pool_of_processes_reads_the_store(
    store: Store, small_blocks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes open the store for themselves and find what one finds."""
    from firstfault_tools.log import plan

    monkeypatch.setattr(plan, "BATCH_BYTES", 100_000)
    monkeypatch.setattr(plan, "PART_BYTES", 200_000)
    store.put("run/rank_1.log", LOG)
    workspace = Workspace(cache=None, spool=tmp_path / "spool")
    collection = collect_sources([address(store, "run")], workspace.spool)
    one = workspace.diagnose_collection(collection, "", Workers(1)).to_json()
    assert workspace.diagnose_collection(collection, "", Workers(2)).to_json() == one
