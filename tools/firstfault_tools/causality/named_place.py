"""Which process, GPU or pod does a finding name, in its facts or in the lines around those that it cites?"""

from __future__ import annotations

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Finding
from firstfault_tools.log.place import Place
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.placement.pods import pod_of

STRIKES_ONE = (
    Category.OOM,
    Category.DATA,
    Category.HARDWARE,
    Category.NUMERICAL,
    Category.CODE_BUG,
)
"""Categories whose faults strike one process; the others lie in what the ranks share."""

_IN_FRONT = expression(
    r"\[?(?:pod/)?(?P<pod>[a-z0-9][a-z0-9.-]{0,200}-\d{1,5})(?:/[\w.-]+)?[\]|:] "
)

_DESCRIBED = expression(
    r"\bkubectl (?:-n \S+ )?(?:describe|logs) pods?[ /](?P<pod>[a-z0-9][a-z0-9.-]+)|^Name: +(?P<named>[a-z0-9][a-z0-9.-]+)"
)

_DESCRIPTION = 80
"""Lines that the description of a pod has between its heading and its events at most."""


def place_named(incident: LogIncident, finding: Finding) -> Place:
    """The process, GPU or pod that a finding names."""
    bus = finding.text(Fact.PCI) or finding.text(Fact.BUS) or finding.pci_address
    if finding.has(FindingRole.PORT_DOWN):
        bus = None  # that of the adapter, where no rank sits
    pod = finding.pod or _pod(finding) or _pod_in_front(finding)
    if not pod and FindingRole.POD_REMOVED in finding.roles:
        pod = _pod_described(incident, finding)
    return Place(
        host=finding.host or (_host_in_front(finding) if bus else None),
        pid=finding.pid,
        gpu=finding.gpu_index,
        pci=bus,
        pod=pod,
    )


def _pod(finding: Finding) -> str | None:
    """Pod that a line of Kubernetes is about."""
    if FindingRole.OF_POD not in finding.roles:
        return None
    pods = {pod for e in finding.evidence[:3] if (pod := pod_of(e.text)) is not None}
    return next(iter(pods)) if len(pods) == 1 else None


def _pod_described(incident: LogIncident, finding: Finding) -> str | None:
    """Pod whose description a line without a name stands in."""
    place = finding.evidence[0]
    digest = incident.digest_of(place.file)
    at = digest.position(place.line)
    for _, text in reversed(digest.kept[max(0, at - _DESCRIPTION) : at]):
        match = _DESCRIBED.search(text) if "kubectl" in text or text.startswith("Name:") else None
        if match is not None:
            return match["pod"] or match["named"]
    return None


def _pod_in_front(finding: Finding) -> str | None:
    """Pod whose name a collector put in front of every quoted line of a fault that strikes one process."""
    if finding.category not in STRIKES_ONE or not finding.kind.startswith(
        ("signature.", "traceback.")
    ):
        return None
    found = {
        m["pod"] if (m := _IN_FRONT.match(e.text)) is not None else None for e in finding.evidence
    }
    return found.pop() if len(found) == 1 else None


def _host_in_front(finding: Finding) -> str | None:
    """Host that a launcher or a collector put in front of the lines."""
    hosts = {read_prefix(e.text)[0].host for e in finding.evidence[:3]}
    return next(iter(hosts)) if len(hosts) == 1 else None
