"""Which places a visitor may name: below the roots, never the kernel's nor our own, links resolved."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.errors import InputUnreadable
from firstfault.incidents.acceptance import NamedPath, accept_inputs
from firstfault.intake.places import read_roots, refuse_outside, refuse_place
from firstfault.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    data = tmp_path / "data"
    data.mkdir()
    (data / "incidents.sqlite").write_text("rows of others")
    return Settings(data=data, path_roots=str(tmp_path / "logs"))  # type: ignore[call-arg]


@pytest.mark.parametrize("place", ["/proc/self/environ", "/proc/1/cmdline", "/sys/kernel", "/dev/zero", "/proc", "/dev/../proc/self/maps"])  # fmt: skip
def test_the_machine_itself_is_closed(place: str, settings: Settings) -> None:
    assert "never read" in refuse_place(Path(place), settings)
    with pytest.raises(InputUnreadable, match="never read"):
        accept_inputs([NamedPath(Path(place))], settings)


def test_our_own_data_is_closed_also_by_a_link(tmp_path: Path, settings: Settings) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "ok.log").write_text("RuntimeError: boom")
    (logs / "link").symlink_to(settings.data / "incidents.sqlite")
    for place in (settings.data, settings.data / "incidents.sqlite", logs / "link"):
        with pytest.raises(InputUnreadable, match="own data"):
            accept_inputs([NamedPath(place)], settings)
    found = accept_inputs([NamedPath(tmp_path)], settings)
    assert [f.name for f in found.files] == ["logs/ok.log"]
    assert "own data" in str(found.skipped)


def test_only_what_lies_below_a_root(tmp_path: Path, settings: Settings) -> None:
    logs, roots = tmp_path / "logs", read_roots(settings.path_roots)
    logs.mkdir()
    (logs / "run").mkdir()
    (logs / "out").symlink_to("/etc")
    assert refuse_outside(logs / "run" / "a.log", roots, "X") == ""
    for way in (logs / "out" / "passwd", logs / ".." / "x", tmp_path / "logs2", Path("/etc/passwd"), Path("/")):  # fmt: skip
        assert refuse_outside(way, roots, "X") == "outside the folders of X"
    assert refuse_outside(logs, (), "X")
