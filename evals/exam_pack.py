"""Which incidents make the exam of a model? Chosen from the dev cases, packed into the product.

    python -m evals.exam_pack            writes app/firstfault/agent/exam/incidents.json.gz

Taken are short text cases whose right answer can be told by words that no surface changes (no numbers
or names of machines in them): 15 healthy, 10 that the evidence does not decide, and faults of all
categories, among them 10 or more whose loudest line names another kind. Two ranks may be exchanged where
the deterministic reading follows the exchange.
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
from collections import defaultdict
from dataclasses import asdict, replace
from pathlib import Path

from evals.baselines import grep
from evals.cases import Case, load_cases

from firstfault.agent.exam.surfaces import Incident, vary
from firstfault.workspace import Workspace
from firstfault_tools.log.prefix import read_prefix

OUT = Path(__file__).parent.parent / "app/firstfault/agent/exam/incidents.json.gz"
HEALTHY, UNDECIDED, FAULTS = 15, 10, 45
MOST_BYTES, MOST_FILES = 6_000, 4


def main() -> None:
    """Choose, check, write."""
    workspace = Workspace()
    by_kind: dict[str, list[Incident]] = defaultdict(list)
    for case in load_cases():
        incident = read_incident(case)
        if incident is not None:
            by_kind[incident.kind].append(incident)
    chosen = _spaced(by_kind.pop("healthy"), HEALTHY) + _spaced(by_kind.pop("undecided"), UNDECIDED)
    share = -(-FAULTS // len(by_kind))
    for rows in by_kind.values():
        loud = [i for i in rows if i.misleading]
        quiet = [i for i in rows if not i.misleading]
        half = _spaced(loud, share // 2)
        chosen += half + _spaced(quiet, share - len(half))
    final = [replace(i, swap=_find_swap(i, workspace)) for i in chosen]
    data = json.dumps([asdict(i) for i in final], ensure_ascii=False, sort_keys=True)
    OUT.write_bytes(gzip.compress(data.encode(), 9, mtime=0))
    misleading, moved = sum(i.misleading for i in final), sum(i.swap is not None for i in final)
    print(
        f"{len(final)} incidents, {misleading} misleading, {moved} with ranks to exchange, {OUT.stat().st_size} bytes"
    )


def _spaced(rows: list[Incident], count: int) -> list[Incident]:
    """`count` of them, evenly over the list, so that no source is taken alone."""
    if len(rows) <= count:
        return list(rows)
    return [rows[i * len(rows) // count] for i in range(count)]


def read_incident(case: Case) -> Incident | None:
    """The case as a question of the exam; None where it does not suit."""
    files = {}
    for path in case.inputs:
        data = path.read_bytes()
        if b"\0" in data:
            return None
        files[path.name] = data.decode("utf-8", "replace")
    words = " ".join((*case.expect.must_mention, *case.expect.must_not_claim))
    small = sum(map(len, files.values())) <= MOST_BYTES and len(files) <= MOST_FILES
    kind = case.expect.kind
    plain = kind in ("healthy", "undecided") or (case.expect.must_mention and not re.search(r"\d", re.sub(r"\{\d+(?:,\d*)?\}", "", words)))  # fmt: skip
    if not small or not plain:
        return None
    loud = grep.answer("\n".join(files.values()))
    return Incident(
        case.id, kind, case.question, files,
        tuple(case.expect.accept_categories), case.expect.first_failing_rank,
        case.expect.must_mention, case.expect.must_not_claim,
        kind == "healthy", kind == "undecided",
        kind not in ("healthy", "undecided") and loud.category not in case.expect.accept_categories,
    )  # fmt: skip


def _find_swap(incident: Incident, workspace: Workspace) -> tuple[int, int] | None:
    """Two ranks that may be exchanged: the reading of the tools moves with them."""
    if incident.rank is None or len(incident.files) != 1:
        return None
    text = next(iter(incident.files.values()))
    if re.search(r"(?i)ranks?\W{0,3}[\[(]|\d-\d+\]|node_rank|nodes?\W+[2-9]", text):
        return None
    ranks = {r for line in text.splitlines() if (r := read_prefix(line)[0].rank) is not None}
    others = sorted(r for r in ranks if r != incident.rank and r < 8)
    if not others or max(ranks) > 7:
        return None
    pair = (incident.rank, others[0])
    swapped = vary(replace(incident, swap=pair), _seed_that_swaps(incident, pair))
    if _rank_of(incident, workspace) == pair[0] and _rank_of(swapped, workspace) == swapped.rank == pair[1]:  # fmt: skip
        return pair
    return None


def _seed_that_swaps(incident: Incident, pair: tuple[int, int]) -> int:
    tried = (s for s in range(1, 50) if vary(replace(incident, swap=pair), s).rank == pair[1])
    return next(tried, 1)


def _rank_of(incident: Incident, workspace: Workspace) -> int | None:
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, text in incident.files.items():
            paths.append(Path(folder) / name)
            paths[-1].write_text(text, "utf-8")
        return workspace.diagnose_paths(paths, incident.question).first_failing_rank


if __name__ == "__main__":
    main()
