"""Does every reader survive damage? Real captures, mutated, through all readers and line finders.

Every capture is damaged in so many ways, the same on every machine; a seed that failed is printed with its
capture, so that it can be replayed. `python -m evals.fuzz` tries as many more as one likes.
"""

from __future__ import annotations

import random
import time
from itertools import product
from pathlib import Path

import pytest

from firstfault_tools.errors import ToolError
from firstfault_tools.registry import Artefact, line_finders, readers

ROOT = Path(__file__).parents[2]
FOLDERS = (
    *sorted(p.parent for p in (ROOT / "evals" / "cases" / "dev").rglob("case.yaml")),
    ROOT / "tests" / "tools" / "probe" / "captures",
    *(ROOT.parent / "shared" / "cases" / name for name in ("captures", "lab/missing_collective")),
)
SEEDS = 8
MOST = 40_000
TOKENS = (
    b"\0",
    b"\xff\xfe",
    b"-1",
    b"nan",
    b"1e999",
    b"99999999999999999999",
    b"\n" * 50,
    b"{" * 40,
    b"%s",
)


def list_captures() -> list[Path]:
    """Up to three real artefacts for each reader, the smallest first."""
    files = [
        p for d in FOLDERS if d.is_dir() for p in d.iterdir() if p.is_file() and p.suffix != ".py"
    ]
    chosen: dict[str, list[Path]] = {}
    for path in sorted(files, key=lambda p: (p.stat().st_size, p.name)):
        head = Artefact(path.name, path).head()
        for reader in readers():
            if len(chosen.setdefault(reader.name, [])) < 3 and reader.recognise(path.name, head):
                chosen[reader.name].append(path)
    return list(dict.fromkeys(p for paths in chosen.values() for p in paths))


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One to six cuts, swaps, doublings, flipped bytes or odd tokens."""
    body = bytearray(data[:MOST])
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(body) + 1)
        end = min(len(body), at + rng.choice((1, 4, 40, 400)))
        kind = rng.randrange(6)
        if kind == 0:
            del body[at:end]
        elif kind == 1:
            body[at:at] = body[at:end]
        elif kind == 2 and at < len(body):
            body[at] = rng.randrange(256)
        elif kind == 3:
            body[at:at] = rng.choice(TOKENS)
        elif kind == 4:
            del body[at:]
        else:
            lines = bytes(body).split(b"\n")
            rng.shuffle(lines)
            body = bytearray(b"\n".join(lines))
    return bytes(body)


def test_no_damage_raises_anything_but_tool_errors(tmp_path: Path) -> None:
    files = list_captures()
    known = {
        r.name for r in readers() for p in files if r.recognise(p.name, Artefact(p.name, p).head())
    }
    if len(known) < 5:
        pytest.skip("no captures here")
    tried = 0
    spent: list[tuple[float, str]] = []
    target = tmp_path / "x"
    for seed, path in product(range(SEEDS), files):
        body = mutate(path.read_bytes(), random.Random(f"{seed}:{path.name}"))
        target.write_bytes(body)
        artefact = Artefact(path.name, target)
        begin = time.process_time()
        for reader in readers():
            # Now and then a reader gets what it would not take for its own.
            if not reader.recognise(path.name, artefact.head()) and seed % 8:
                continue
            try:
                reader.read((artefact,))
            except ToolError:
                continue
            except Exception as error:
                raise AssertionError(
                    f"{reader.name} on {path} with seed {seed}: {error!r}"
                ) from error
        text = body.decode("utf-8", errors="replace").split("\n")
        for name, find in line_finders().items():
            try:
                tuple(find(list(enumerate(text, start=1)), path.name))
            except ToolError:
                continue
            except Exception as error:
                raise AssertionError(f"{name} on {path} with seed {seed}: {error!r}") from error
        spent.append((time.process_time() - begin, f"{path} with seed {seed}"))
        tried += 1
    spent.sort()
    usual, longest = spent[len(spent) // 2][0], spent[-1]
    assert longest[0] < 1000 * max(usual, 0.01), f"{longest} against {usual} s as a rule"
    print(
        f"{tried} damaged artefacts, {len(files)} captures, {len(known)} of {len(readers())} readers"
    )
