"""Which network adapters and ports are there, are they up, and do their error counters count?"""

from __future__ import annotations

import os
from typing import Any

from .record import make_record

INFINIBAND = "/sys/class/infiniband"
NETWORK = "/sys/class/net"
IB_COUNTERS = (
    "symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors",
    "port_rcv_remote_physical_errors", "port_xmit_discards", "local_link_integrity_errors",
    "excessive_buffer_overrun_errors", "port_xmit_wait",
)  # fmt: skip
HARDWARE_COUNTERS = (
    "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err",
    "roce_adp_retrans", "rx_icrc_encapsulated", "duplicate_request", "out_of_buffer",
)  # fmt: skip
NET_COUNTERS = (
    "rx_errors", "rx_crc_errors", "rx_dropped", "rx_missed_errors", "tx_errors", "tx_dropped",
    "tx_carrier_errors",
)  # fmt: skip


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read(256).strip()
    except OSError:
        return None


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _counters(folder: str, names: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for name in names:
        text = _read(os.path.join(folder, name))
        if text is not None and text.isdecimal() and int(text):
            found[name] = int(text)
    return found


def check_ports() -> list[dict[str, Any]]:
    """One record for each RDMA port and each physical network device; only counters above zero."""
    records = []
    for device in _names(INFINIBAND):
        ports = os.path.join(INFINIBAND, device, "ports")
        for port in _names(ports):
            place = os.path.join(ports, port)
            values: dict[str, Any] = {
                "device": device,
                "port": port,
                "state": _read(os.path.join(place, "state")),
                "physical_state": _read(os.path.join(place, "phys_state")),
                "rate": _read(os.path.join(place, "rate")),
                "link_layer": _read(os.path.join(place, "link_layer")),
                "counters": _counters(os.path.join(place, "counters"), IB_COUNTERS),
                "hardware_counters": _counters(
                    os.path.join(place, "hw_counters"), HARDWARE_COUNTERS
                ),
            }
            records.append(make_record("port", values=values))
    for device in _names(NETWORK):
        place = os.path.join(NETWORK, device)
        # Only devices with hardware behind them; bridges and tunnels have no `device` link.
        if not os.path.exists(os.path.join(place, "device")):
            continue
        speed = _read(os.path.join(place, "speed"))
        values = {
            "device": device,
            "state": _read(os.path.join(place, "operstate")),
            "speed_mbits": int(speed) if speed and speed.isdecimal() else None,
            "mtu_bytes": int(_read(os.path.join(place, "mtu")) or 0),
            "counters": _counters(os.path.join(place, "statistics"), NET_COUNTERS),
        }
        records.append(make_record("network_device", values=values))
    if not records:
        return [make_record("port", "unavailable", reason="not available here: no network device")]
    if not _names(INFINIBAND):
        reason = "not available here: no RDMA device (InfiniBand, RoCE or EFA)"
        records.append(make_record("port", "unavailable", reason=reason))
    return records
