"""What is the one spelling of a PCI address, and how is a GPU named to a person?

The driver prints `PCI:0000:9a:00`, nvidia-smi `00000000:9A:00.0`, NCCL `9a000`, sysfs `0000:9a:00.0`.
All become `0000:9a:00.0`, so that a kernel line and an nvidia-smi row meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding

_ADDRESS = expression(
    r"(?:PCI:)?(?:(?P<domain>[0-9a-fA-F]{4,8}):)?(?P<bus>[0-9a-fA-F]{2}):(?P<device>[0-9a-fA-F]{2})"
    r"(?:\.(?P<function>[0-7]))?$"
)

_NUMBER = expression(r"[0-9a-f]{4,6}")


def normalise_address(text: str) -> str | None:
    """`0000:9a:00.0` for any spelling of a PCI address, None where it is none."""
    found = _ADDRESS.match(text.strip())
    if found is None:
        return None
    domain = (found["domain"] or "0000").lower()[-4:]
    return f"{domain}:{found['bus'].lower()}:{found['device'].lower()}.{found['function'] or '0'}"


def find_slot(text: str) -> str:
    """`9a:00`, bus and device, of any spelling of a PCI address; other text as it is, in lower case.

    What lines of one host are joined by: NCCL's number names no domain.
    """
    text = text.lower().replace("pci", "").strip(" :")
    address = normalise_address(text)
    if address is not None:
        return address[5:10]
    if _NUMBER.fullmatch(text):
        # bus, device and function as one number
        value = int(text, 16)
        return f"{(value >> 12) & 0xFF:02x}:{(value >> 4) & 0xFF:02x}"
    return text


def name_gpu(address: str | None, index: int | None = None) -> str | None:
    """`GPU 1 (PCI 0000:00:07.0)`, or what of it is known."""
    if index is not None and address:
        return f"GPU {index} (PCI {address})"
    if index is not None:
        return f"GPU {index}"
    return f"PCI {address}" if address else None


def call_gpu(gpu: str | None) -> str:
    """`GPU 3`, `PCI 0000:9a:00.0`: a GPU in a sentence, in whichever way its finding told it; '' for none."""
    if not gpu:
        return ""
    if gpu.upper().startswith(("GPU", "PCI")):
        return gpu
    return f"PCI {gpu}" if ":" in gpu else f"GPU {gpu}"


def number_gpus(findings: Iterable[Finding], indices: Mapping[str, int]) -> tuple[Finding, ...]:
    """Put GPU indices into findings that only know the PCI address.

    `indices` maps normalised addresses to indices, as nvidia-smi's reader gives them in
    `Reading.data["gpus"]`. Holds only within one host; the caller sees to that.
    """
    numbered = []
    for finding in findings:
        address = finding.pci_address
        index = indices.get(address) if address is not None else None
        if (
            index is not None
            and address is not None
            and address == (finding.gpu or "").removeprefix("PCI ")
        ):
            finding = replace(finding, gpu=name_gpu(address, index))
        numbered.append(finding)
    return tuple(numbered)
