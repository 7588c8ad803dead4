"""Which host carries the fault, or which pair, or is it the size? Group testing with a fault that shows at times.

Explanations: each host; with `pairs` each two that fail only together, and each two of which either fails;
sizes from which on any group fails; nothing fails. A host is only named where these do not explain it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.experiments.search import Space, Subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

HOST, TOGETHER, EITHER, NOTHING = "host", "together", "either", "nothing"
SIZE, EVERYWHERE = "size", "everywhere"
_SHARES = {HOST: 0.55, TOGETHER: 0.07, EITHER: 0.07, SIZE: 0.06, EVERYWHERE: 0.15, NOTHING: 0.1}
"""Belief before the first trial. One host is likelier than two; a fault of all (the program, the image) and
one that is gone are likely enough that a few trials must speak against them before a host is named."""
MOST_HOSTS, MOST_PAIRED = 4096, 128
MOST_SIZES, MOST_FLOORS = 12, 256
SHARES = (0.25, 0.37, 0.5)
"""Belief that a group should hold: a half where the fault always shows, 1/e where it seldom does (the best
inputs of a symmetric and of a Z channel)."""


def check_hosts(hosts: Sequence[str], sizes: Sequence[int], pairs: bool) -> None:
    """Raises InvalidParameter where they cannot be tested in groups."""
    if len(set(hosts)) != len(hosts):
        raise InvalidParameter("hosts", "names one twice")
    if not 2 <= len(hosts) <= MOST_HOSTS:
        raise InvalidParameter("hosts", f"must be 2 to {MOST_HOSTS}, got {len(hosts)}")
    if pairs and len(hosts) > MOST_PAIRED:
        raise InvalidParameter("hosts", f"must be at most {MOST_PAIRED} where pairs are looked for")
    if any(not 1 <= size <= len(hosts) for size in sizes):
        raise InvalidParameter("group_sizes", f"must lie between 1 and {len(hosts)}")
    if set(sizes) == {len(hosts)}:
        raise InvalidParameter("group_sizes", "must hold a size below all hosts")


def host_space(hosts: Sequence[str], sizes: Sequence[int] = (), pairs: bool = False) -> Space:
    """sizes: numbers of hosts that a trial may have; empty: any. Raises InvalidParameter."""
    import numpy as np

    check_hosts(hosts, sizes, pairs)
    count = len(hosts)
    at = {host: i for i, host in enumerate(hosts)}
    allowed = sorted(set(sizes)) or list(range(1, count + 1))
    twos = list(combinations(range(count), 2)) if pairs else []
    rows = [(HOST, host) for host in hosts]
    rows += [(kind, f"{hosts[a]} {hosts[b]}") for kind in (TOGETHER, EITHER) for a, b in twos]
    rows.append((EVERYWHERE, "1"))
    rows += [(SIZE, str(size)) for size in allowed[1:MOST_FLOORS]]
    rows.append((NOTHING, ""))
    kinds = [kind for kind, _ in rows]
    share = {kind: _SHARES[kind] / kinds.count(kind) for kind in set(kinds)}
    first, second = (np.array([t[i] for t in twos], dtype=int) for i in (0, 1))

    def allows(subjects: Sequence[Subject]) -> NDArray[Any]:
        inside = np.zeros((count, len(subjects)), dtype=bool)
        for column, subject in enumerate(subjects):
            inside[[at[h] for h in subject], column] = True
        sized = np.array([len(s) for s in subjects])
        floors = np.array([int(n) for kind, n in rows if kind in (SIZE, EVERYWHERE)])
        parts = [inside]
        if twos:
            parts += [inside[first] & inside[second], inside[first] | inside[second]]
        parts += [sized[None, :] >= floors[:, None], np.zeros((1, len(subjects)), dtype=bool)]
        return np.concatenate(parts)

    def propose(weights: NDArray[Any]) -> list[Subject]:
        belief = weights[:count].copy()
        for offset in (count, count + len(twos)) if twos else ():
            np.add.at(belief, first, weights[offset : offset + len(twos)] / 2)
            np.add.at(belief, second, weights[offset : offset + len(twos)] / 2)
        order = sorted(range(count), key=lambda i: (-belief[i], i))
        ahead = np.concatenate([[0.0], np.cumsum(belief[order])])
        return [
            tuple(hosts[i] for i in sorted(group))
            for size in _thin(allowed)
            for group in _groups(order, ahead, size)
        ]

    return Space(
        tuple(f"{kind} {name}".strip() for kind, name in rows),
        tuple(share[kind] for kind, _ in rows),
        allows,
        propose,
    )


def _thin(sizes: Sequence[int]) -> list[int]:
    """Few of many sizes, spread by their ratio: halves, quarters and so on tell most."""
    if len(sizes) <= MOST_SIZES:
        return list(sizes)
    low, high = sizes[0], sizes[-1]
    wanted = [low * (high / low) ** (k / (MOST_SIZES - 1)) for k in range(MOST_SIZES)]
    return sorted({min(sizes, key=lambda s: abs(s - w)) for w in wanted})


def _groups(order: Sequence[int], ahead: NDArray[Any], size: int) -> list[tuple[int, ...]]:
    """Groups of one size whose share of the belief is near one that tells most.

    A group is a run of hosts in the order of suspicion, filled with the least suspect. ahead: belief in
    the first k of that order.
    """
    count = len(order)
    runs = []
    for skip in sorted({0, 1, 2, 3, *(count * k // 8 for k in range(8))}):
        for most in sorted({1, 2, 3, size // 8, size // 4, size // 2, size} - {0}):
            end = min(count, skip + min(most, size))
            if end > skip and count - (end - skip) >= size - (end - skip):
                runs.append((skip, end, float(ahead[end] - ahead[skip])))
    chosen = dict.fromkeys(min(runs, key=lambda run: abs(run[2] - share))[:2] for share in SHARES)
    # each of the first two, both, none: what tells a host from pairs and from the size
    chosen |= dict.fromkeys([(0, 1), (1, 2), *([(0, 2)] if size > 1 else []), *([(0, 0)] if size <= count - 2 else [])])  # fmt: skip
    found = []
    for skip, end in chosen:
        core = order[skip:end]
        rest = [*order[:skip], *order[end:]]
        found.append((*core, *(rest[len(rest) - size + len(core) :] if size > len(core) else ())))
    return found
