"""Whatever door a secret comes in by, it is on no record, in no export, draft, share view or answer."""

from __future__ import annotations

import io
import json
import sqlite3
import stat
import zipfile
from pathlib import Path

import pytest
from fpdf import FPDF

from firstfault.incidents.acceptance import PastedText, Upload
from firstfault.mcp_server.desk import Desk
from firstfault.service import NewIncident, Service, open_service
from firstfault.settings import Settings

LOG = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
SECRETS = {
    door: f"hf_{door[:2].upper()}" + "aB3dE6gH9" * 4
    for door in ("question", "title", "follow", "feedback", "file", "pasted", "evidence", "rename")
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    (folder / "evidence").mkdir(mode=0o755)
    (folder / "evidence" / "old").write_text("left by an older version")
    (folder / "evidence" / "old").chmod(0o644)
    return folder


@pytest.fixture
def told(data: Path) -> tuple[Service, str]:
    """An incident into which every door let a secret."""
    service = open_service(Settings(data=data))  # type: ignore[call-arg]
    new = NewIncident(
        (
            Upload(f"run token={SECRETS['file']}.log", LOG.encode()),
            PastedText(LOG + "x\n", f"pasted {SECRETS['pasted']}.txt"),
        ),
        f"why does it fail with {SECRETS['question']}?",
        f"my run {SECRETS['title']}",
    )
    identity = service.start(new)
    for _ in service.follow(identity, timeout=90):
        pass
    service.ask(identity, f"is {SECRETS['follow']} the reason?")
    for _ in service.follow(identity, timeout=90):
        pass
    service.add_evidence(identity, [PastedText(LOG * 2)], f"see {SECRETS['evidence']}")
    for _ in service.follow(identity, timeout=90):
        pass
    service.feedback(identity, False, f"it was {SECRETS['feedback']}")
    service.rename(identity, f"again {SECRETS['rename']}")
    return service, identity


def test_secrets_at_every_door_and_exit(
    told: tuple[Service, str], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, identity = told
    printed: list[str] = []
    normalise = FPDF.normalize_text

    def note(document: FPDF, text: str) -> str:
        printed.append(text)
        return normalise(document, text)

    monkeypatch.setattr(FPDF, "normalize_text", note)
    out: dict[str, str] = {}
    with sqlite3.connect(data / "incidents.sqlite") as database:
        out["rows"] = "\n".join(database.iterdump())
    for form in ("json", "md", "html"):
        out[form] = service.export(identity, form).decode()
    with zipfile.ZipFile(io.BytesIO(service.export(identity, "docx"))) as document:
        out["docx"] = "".join(document.read(n).decode("utf-8", "replace") for n in document.namelist() if n.endswith("xml"))  # fmt: skip
    assert service.export(identity, "pdf").startswith(b"%PDF")
    # the file holds glyphs of a subset, so it is looked at what is set in them
    out["pdf"] = "".join(printed).replace("\u200b", "")  # places where a long word may be broken
    out["report"] = str(service.report(identity))
    out["share"] = str(service.shared(service.share(identity)))
    out["events"] = str(service.events(identity))
    out["turns"] = str(service.turns(identity))
    out["draft"] = "".join(p.read_text() for p in (data / "draft_cases").rglob("*") if p.is_file())
    desk = Desk(settings=service.settings)
    desk.service = service
    out["mcp"] = json.dumps([desk.incident(identity), desk.incidents(), desk.overview(identity)])
    for where, text in out.items():
        for door, secret in SECRETS.items():
            assert secret not in text, (where, door)
    for where in ("share", "docx", "pdf", "md", "html"):
        assert "redacted:huggingface_token" in out[where], where
    service.close()


def test_what_was_kept_before_a_format_was_known_is_hidden_on_the_way_out(told: tuple[Service, str], data: Path) -> None:  # fmt: skip
    service, identity = told
    old = "hf_" + "oLd7" * 9
    with sqlite3.connect(data / "incidents.sqlite") as database:
        database.execute("UPDATE incidents SET title = ?", (f"t {old}",))
        database.execute("UPDATE turns SET text = ?", (f"q {old}",))
        database.execute("UPDATE feedback SET really = ?", (f"f {old}",))
        database.execute("UPDATE events SET body = replace(body, 'why does', ?)", (old,))
    shown = [
        service.incident(identity), service.turns(identity), service.feedback_given(identity),
        service.events(identity), service.report(identity),
    ]  # fmt: skip
    assert old not in str(shown)
    service.close()


def test_deleting_for_good_leaves_nothing(told: tuple[Service, str], data: Path) -> None:
    service, identity = told
    assert (data / "draft_cases" / f"draft-{identity}").is_dir()
    service.delete(identity)
    assert not list((data / "draft_cases").iterdir())
    assert not (data / "scratch" / identity).exists()
    left = [p for p in (data / "evidence").rglob("*") if p.is_file()]
    assert left == [data / "evidence" / "old"]
    service.close()
    for file in data.glob("*.sqlite*"):
        assert b"CUDA out of memory" not in file.read_bytes(), file.name


def test_everything_is_the_owners_also_in_a_folder_made_before(told: tuple[Service, str], data: Path) -> None:  # fmt: skip
    service, _ = told
    for path in (data, *data.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o077 == 0, (path, oct(mode))
    service.close()


def test_a_folder_with_other_things_in_it_keeps_its_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "mine.txt").write_text("x")
    (tmp_path / "mine.txt").chmod(0o644)
    with open_service(Settings(data=tmp_path), workers=False):  # type: ignore[call-arg]
        pass
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "mine.txt").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "incidents.sqlite").stat().st_mode) == 0o600
