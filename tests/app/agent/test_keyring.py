"""Keys in a real keyring: the library's own loading of a backend, one that writes a file, and none."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import keyring
import pytest

from firstfault.agent import connecting
from firstfault.agent.connecting import forget_key, has_keyring, keep_key, read_kept_key, with_model
from firstfault.errors import UsageError
from firstfault.settings import Settings

ONE, TWO = "https://one.example/v1", "https://two.example/v1"
IN_A_FILE = "keyrings.alt.file.PlaintextKeyring"


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Let keyring load a backend as its configuration names it; the folder in which files of it lie."""
    before = keyring.get_keyring()

    def load(backend: str) -> Path:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        monkeypatch.setenv("PYTHON_KEYRING_BACKEND", backend)
        keyring.core.init_backend()
        return tmp_path / "python_keyring"

    yield load
    keyring.set_keyring(before)


def test_a_key_is_kept_read_and_forgotten(choose: Callable[[str], Path]) -> None:
    folder = choose(IN_A_FILE)
    assert has_keyring()
    assert read_kept_key(ONE) == ""
    keep_key(ONE, "sk-one")
    keep_key(TWO, "sk-two")
    assert [p.name for p in folder.iterdir()] == ["keyring_pass.cfg"]
    choose(IN_A_FILE)  # as another process would
    assert [read_kept_key(u) for u in (ONE, f" {ONE}/", TWO)] == ["sk-one", "sk-one", "sk-two"]
    keep_key(ONE, "sk-new")
    assert read_kept_key(ONE) == "sk-new"
    forget_key(ONE)
    forget_key(ONE)
    assert [read_kept_key(u) for u in (ONE, TWO)] == ["", "sk-two"]


def test_a_kept_key_serves_its_own_address_only(
    choose: Callable[[str], Path], tmp_path: Path
) -> None:
    choose(IN_A_FILE)
    keep_key(ONE, "sk-one")
    settings = Settings(data=tmp_path)  # type: ignore[call-arg]
    kept = [with_model(settings, u, "m").model_key.get_secret_value() for u in (ONE, TWO)]
    assert kept == ["sk-one", ""]


@pytest.mark.parametrize("backend", ["keyring.backends.fail.Keyring", "keyring.backends.null.Keyring"])  # fmt: skip
def test_without_a_backend_it_is_said_and_nothing_breaks(
    backend: str, choose: Callable[[str], Path]
) -> None:
    choose(backend)
    assert not has_keyring()
    assert read_kept_key(ONE) == ""
    forget_key(ONE)
    with pytest.raises(UsageError, match="no keyring that keeps keys; set FIRSTFAULT_MODEL_KEY"):
        keep_key(ONE, "sk-one")


def test_without_the_package_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(connecting, "find_spec", lambda n: None if n == "keyring" else found(n))
    assert not has_keyring()
    assert read_kept_key(ONE) == ""
    with pytest.raises(UsageError, match="keyring is not installed"):
        keep_key(ONE, "sk-one")


def test_a_keyring_that_cannot_write_is_named(choose: Callable[[str], Path]) -> None:
    folder = choose(IN_A_FILE)
    folder.write_text("a file stands where its folder should be", "utf-8")
    with pytest.raises(UsageError, match="the keyring does not take the key"):
        keep_key(ONE, "sk-one")
    assert read_kept_key(ONE) == ""
