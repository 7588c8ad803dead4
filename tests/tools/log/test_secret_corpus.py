"""How many secrets get through, and how many harmless lines are touched? Two corpora, both rates printed.

The lines are templates in the formats of public tools; what stands in their gaps is made up here, so
that no value in the files looks like anybody's key.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import re2
from tests.growth import grow_cpu
from tests.rows import each_row

from firstfault_tools.knowledge.pack import read_yaml
from firstfault_tools.log import secrets

DATA = Path(__file__).parent / "data"
MOST_MISSED, MOST_TOUCHED = 0.01, 0.02
ALPHABETS = {
    "h": "0123456789abcdef",
    "m": string.ascii_letters + string.digits,
    "b": string.ascii_letters + string.digits + "+/",
    "u": string.ascii_uppercase + "234567",
    "d": string.digits,
    "w": string.ascii_lowercase + string.digits + "#x!-",
}
_GAP = re.compile(r"\{([hmbudw])(\d+)\}")


def fill(template: str, rng: random.Random) -> tuple[str, list[str]]:
    """The line, and the values that must not be left in it."""
    values: list[str] = []

    def put(gap: re.Match[str]) -> str:
        size = int(gap[2])
        value = "".join(rng.choice(ALPHABETS[gap[1]]) for _ in range(size))
        if gap[1] == "w":
            value = value.replace("#", "k").replace("!", "k")
            value = f"h{value[1:-2]}7x" if size > 4 else value
        elif size >= 20 and gap[1] in "mbhu":
            value = f"{value[:-3]}7{value[-2:]}"  # a random key of this length holds a digit
        if size >= 8:
            values.append(value)
        return value

    return _GAP.sub(put, template).replace("{{", "{").replace("}}", "}"), values


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = read_yaml((DATA / name).read_text())
    return found


def secret_lines(seed: int) -> Iterator[tuple[str, list[str]]]:
    corpus, rng = read("secret_lines.yaml"), random.Random(seed)
    for named in corpus["names"]:
        for form in corpus["forms"]:
            line = form.replace("{name}", named["name"]).replace("{value}", named["value"])
            yield fill(line, rng)
    for line in corpus["lines"]:
        yield fill(line, rng)


def harmless_lines(seed: int) -> Iterator[str]:
    corpus, rng = read("harmless_lines.yaml"), random.Random(seed)
    lines = [f.replace("{name}", n) for n in corpus["names"] for f in corpus["forms"]]
    for line in [*lines, *corpus["lines"]]:
        yield fill(line.replace("{n}", str(rng.randrange(1_000, 90_000))), rng)[0]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_secrets_are_hidden(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(secret_lines(seed))
    missed = []
    for text, values in rows:
        shown = secrets.redact(text)
        if shown == text or any(value in shown for value in values):
            missed.append(shown[:160])
        assert secrets.redact(shown) == shown, "what is redacted stays as it is"
    with capsys.disabled():
        print(f"\nseed {seed}: {len(missed)} of {len(rows)} secrets missed")
    assert len(rows) >= 300
    assert len(missed) <= MOST_MISSED * len(rows), missed


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_harmless_lines_stay(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(harmless_lines(seed))
    touched = [shown for text in rows if (shown := secrets.redact(text)) != text]
    with capsys.disabled():
        print(f"\nseed {seed}: {len(touched)} of {len(rows)} harmless lines touched")
    assert len(rows) >= 500
    assert len(touched) <= MOST_TOUCHED * len(rows), touched


def test_the_scan_sees_every_line_that_redaction_changes() -> None:
    """One pass over a file decides which blocks are redacted line by line: it may not overlook one."""
    gate = [re2.compile(p) for p in secrets.scan_patterns()]
    for text, _ in secret_lines(4):
        lines = text.split("\n")
        shown = secrets.redact(text).split("\n")
        if lines != shown:
            assert any(p.search(line) for p in gate for line in lines), text


PIECES = (
    "key=",
    "token: ",
    "password ",
    'x_key="',
    "name: X_KEY ",
    "https://a:b",
    "--key a ",
    "login a ",
    "echo a|",
)
MORE_PIECES = (
    "auth = ",
    "curl -u ",
    "a@b:",
    "eyJ",
    "A1",
    "-----BEGIN PRIVATE KEY",
    " ",
    "password: a ",
    "mysql -u",
    "aws_secret",
    "eyJ-",
    "secret\\",
    "--a-",
    "https://a-",
    "A1b",
)


@each_row("piece", PIECES + MORE_PIECES)
def test_no_line_costs_more_than_linear_time(piece: str) -> None:
    """Four times the length may cost four times as much; an unbounded pattern cost sixteen times."""

    def make(size: int) -> Callable[[], object]:
        text = piece * (size // len(piece)) + "password: hunter22x"
        return lambda: secrets.redact(text)

    assert grow_cpu(make, 16_000) < 9


def test_a_line_before_the_window_names_what_stands_in_it(tmp_path: Path) -> None:
    from firstfault_tools.log.window import read_window

    log = tmp_path / "pod.yaml"
    log.write_text("- name: DB_PASSWORD\n  value: correct-horse-7\nnext\n")
    assert read_window(log, 2, 3) == [(2, "  value: <redacted:password>"), (3, "next")]
