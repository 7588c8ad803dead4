"""What is run for one trial? The user's command with the subject filled in, and the files it is given.

Everything is written below a folder of the experiment; the user's files, checkout and configurations are read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from firstfault.errors import InputUnreadable
from firstfault_tools.dataclass import dataclass
from firstfault_tools.experiments.commits import Repository
from firstfault_tools.experiments.component import OUT_VARIABLE, VARIABLE, environment_of
from firstfault_tools.experiments.differences import (
    Comparison,
    apply_differences,
    compare_texts,
)
from firstfault_tools.experiments.experiment import Design
from firstfault_tools.experiments.kinds import Kind
from firstfault_tools.experiments.trial import fill_command

GOOD, BAD, REPOSITORY, RANKS = "good", "bad", "repository", "ranks"
"""Keys of `Design.source`."""
MOST_BYTES = 4 << 20
ONE_FEWER = "one_rank_fewer"


@dataclass(frozen=True, slots=True)
class Prepared:
    """An argument list with what it needs."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None


def read_configuration(path: Path) -> str:
    """Text of a configuration. Raises InputUnreadable."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputUnreadable(f"{path}: is larger than {MOST_BYTES >> 20} MiB")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputUnreadable(f"{path}: cannot be read ({error})") from error


def compare_files(good: Path, bad: Path) -> Comparison:
    """Differences of two configurations."""
    return compare_texts(read_configuration(good), read_configuration(bad), good.name)


def fields_of(design: Design, subject: tuple[str, ...], folder: Path) -> dict[str, str]:
    """What may stand in braces in the command, for one subject."""
    if design.kind is Kind.HOSTS:
        return {
            "hosts": ",".join(subject),
            "count": str(len(subject)),
            "hostfile": str(folder / "hosts.txt"),
        }
    if design.kind is Kind.PAIRS:
        return {"a": subject[0], "b": subject[1]}
    if design.kind is Kind.SETTINGS:
        name = Path(design.source[GOOD]).name
        return {"config": str(folder / name)}
    if design.kind is Kind.COMPONENT:
        ranks = int(design.source.get(RANKS) or 0)
        fewer = subject == (ONE_FEWER,)
        return {"ranks": str(ranks - fewer)} if ranks else {}
    if design.kind is Kind.SIZES:
        return {"value": subject[0]}
    return {}


def prepare(design: Design, subject: tuple[str, ...], folder: Path, number: int) -> Prepared:
    """The command of one trial; its files are written."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    argv = tuple(fill_command(design.command, fields_of(design, subject, folder)))
    if design.kind is Kind.HOSTS:
        (folder / "hosts.txt").write_text("\n".join(subject) + "\n", encoding="utf-8")
    elif design.kind is Kind.SETTINGS:
        good, bad = Path(design.source[GOOD]), Path(design.source[BAD])
        made = apply_differences(compare_files(good, bad), subject)
        (folder / good.name).write_text(made, encoding="utf-8")
    elif design.kind is Kind.COMMITS:
        place = folder / subject[0][:12]
        Repository(Path(design.source[REPOSITORY])).check_out(subject[0], place)
        argv = tuple(part.replace("{commit}", subject[0]) for part in design.command)
        return Prepared(argv, {"FIRSTFAULT_COMMIT": subject[0]}, place)
    elif design.kind is Kind.COMPONENT:
        out = folder / "records" / f"{number:03}-{subject[0]}"
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        told = environment_of(subject[0])
        for name, value in told.items():
            if name.endswith("DIR"):
                Path(value).mkdir(parents=True, exist_ok=True, mode=0o700)
        return Prepared(argv, {VARIABLE: subject[0], OUT_VARIABLE: str(out), **told})
    return Prepared(argv)


def clean_up(design: Design, folder: Path) -> None:
    """Take checkouts away; what was measured stays."""
    if design.kind is Kind.COMMITS and folder.is_dir():
        Repository(Path(design.source[REPOSITORY])).remove(
            [folder / name for name in sorted(os.listdir(folder))]
        )
