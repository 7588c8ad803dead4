"""Who sees what: sign-in by password, readers, and share links."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr
from streamlit.testing.v1 import AppTest

from firstfault.access import Door
from firstfault.incidents.acceptance import PastedText
from firstfault.incidents.database import DatabaseFailure
from firstfault.incidents.records import Origin
from firstfault.service import NewIncident, Service, open_service
from firstfault.settings import Settings
from firstfault.ui import visitor

SCRIPT = Path(__file__).parent.parent.parent.parent / "app" / "streamlit_app.py"
LOG = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> AppTest:
    settings = Settings(password=SecretStr("all of it"), view_password=SecretStr("only read"))  # type: ignore[call-arg]
    door = Door(settings)
    monkeypatch.setattr(visitor, "_door", lambda: door)
    return AppTest.from_file(str(SCRIPT), default_timeout=60)


@pytest.fixture
def incident() -> str:
    with open_service() as service:
        identity = service.start(NewIncident((PastedText(LOG),)))
        for _ in service.follow(identity, timeout=60):
            pass
    return identity


def sign_in(page: AppTest, password: str) -> AppTest:
    page.run()
    page.text_input(key="password").set_value(password)
    page.button[0].click().run()
    assert not page.exception
    return page


def html_of(page: AppTest) -> str:
    return "\n".join(element.proto.body for element in page.get("html"))


def keys_of(page: AppTest) -> set[str]:
    return {b.key for b in page.button if b.key} | {c.key for c in page.chat_input if c.key}


def test_nothing_is_shown_before_the_password(page: AppTest, incident: str) -> None:
    page.query_params["incident"] = incident
    page.run()
    assert "Verdict" not in html_of(page)
    assert not any(k.startswith(("open-", "example-", "new")) for k in keys_of(page))


def test_a_wrong_password_opens_nothing(page: AppTest) -> None:
    sign_in(page, "guess")
    assert any("rong password" in e.value for e in page.error)
    assert not any(k.startswith("example-") for k in keys_of(page))


def test_the_password_opens_everything(page: AppTest) -> None:
    sign_in(page, "all of it")
    assert {"new-incident"} <= keys_of(page)


def test_a_reader_reads_and_changes_nothing(page: AppTest, incident: str) -> None:
    page.query_params["incident"] = incident
    sign_in(page, "only read")
    assert 'aria-label="Verdict"' in html_of(page)
    changing = {"new-incident", "follow-up", "share-make", "archive", "again", "delete", "right"}
    assert not changing & keys_of(page)


def test_a_share_link_needs_no_password(page: AppTest, incident: str) -> None:
    with open_service(workers=False) as service:
        token = service.share(incident)
    page.query_params["share"] = token
    page.run()
    assert 'aria-label="Verdict"' in html_of(page)
    assert not {"follow-up", "share-make", "archive"} & keys_of(page)


def read_from_this_machine() -> set[tuple[str, str]]:
    """Evidence of the incidents on record that was read by a path, not given."""
    with open_service(workers=False) as opened:
        return {
            (incident.id, file.name)
            for incident in opened.incidents()
            for file in opened.evidence(incident.id)
            if file.origin in (Origin.COPIED, Origin.REFERENCE)
        }


@pytest.mark.parametrize("path", ["{private}", "/etc/passwd", "/proc/self/environ"])
def test_with_a_login_no_typed_path_is_read(page: AppTest, tmp_path: Path, path: str) -> None:
    """What is typed is taken as a question of that wording; the box for paths is not offered at all."""
    (tmp_path / "run.log").write_text(LOG)
    sign_in(page, "all of it")
    assert "paths-read" not in keys_of(page)
    before = read_from_this_machine()
    page.chat_input(key="new-incident").set_value(path.format(private=tmp_path / "run.log")).run()
    assert not page.exception
    assert read_from_this_machine() == before


def test_in_local_mode_the_machine_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "environ").symlink_to("/proc/self/environ")
    page = AppTest.from_file(str(SCRIPT), default_timeout=60).run()
    for path in ("/proc/self/environ", "/sys/kernel", "/dev/zero", str(tmp_path / "environ")):
        page.text_area(key="paths").set_value(path)
        page.button(key="paths-read").click().run()
        assert not page.exception
        said = " ".join(w.value.replace("\\", "") for w in page.warning)
        assert path in said, said
        assert "incident" not in page.query_params


def test_a_database_that_is_down_is_said_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    page = AppTest.from_file(str(SCRIPT), default_timeout=60).run()

    def fail(*_: object, **__: object) -> str:
        cause = ConnectionError("connection refused")
        raise DatabaseFailure(f"the incident database does not answer ({cause}).", cause)

    monkeypatch.setattr(Service, "start", fail)
    page.chat_input(key="new-incident").set_value(LOG).run()
    assert not page.exception
    assert any("does not answer" in e.value for e in page.error), [e.value for e in page.error]
    assert page.chat_input(key="new-incident") is not None
