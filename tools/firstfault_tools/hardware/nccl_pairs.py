"""Which one host do all slow pairs of an nccl-tests matrix share?"""

from __future__ import annotations

from collections.abc import Mapping

from firstfault_tools.expressions import expression

_HOST = expression(r"(?<![\w.-])[A-Za-z][\w-]*\d[\w.-]*(?![\w-])")
_NOT_HOST = expression(r"(?i)^(?:a100|h[12]00|b[23]00|v100|mlx\d|gpu\d|all|nccl|step|run)\w*")
LOW = 0.8


def hosts_of(label: str) -> tuple[str, ...]:
    """Names in a heading that look like hosts."""
    found = [name for name in _HOST.findall(label) if not _NOT_HOST.match(name)]
    return tuple(dict.fromkeys(found))


def find_common_host(rates: Mapping[int, float], labels: Mapping[int, str]) -> tuple[str, list[int]] | None:  # fmt: skip
    """(host, slow runs) where every slow run of two or more hosts holds one host that no good run holds."""
    hosts = {run: hosts_of(labels[run]) for run in rates}
    if len(rates) < 3 or any(len(names) < 2 for names in hosts.values()):
        return None
    best = max(rates.values())
    slow = [run for run, rate in rates.items() if rate < LOW * best]
    good = {name for run, names in hosts.items() if run not in slow for name in names}
    shared = set.intersection(*(set(hosts[run]) for run in slow)) - good if slow else set()
    return (shared.pop(), slow) if len(shared) == 1 and len(slow) < len(rates) else None
