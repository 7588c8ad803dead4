"""Builds flight-recorder dumps the way PyTorch lays them out, for tests of what reads them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firstfault_tools.registry import Artefact

USER = {"filename": "/job/train.py", "line": 84, "name": "train_step"}
LIBRARY = {
    "filename": "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py",
    "line": 3068,
    "name": "all_reduce",
}


@dataclass
class RankRecorder:
    """Records operations of one rank; `dump()` is what the recorder would pickle."""

    rank: int
    groups: Mapping[str, Sequence[int]] = field(default_factory=lambda: {"0": (0, 1)})
    version: str = "2.10"
    entries: list[dict[str, Any]] = field(default_factory=list)

    def call(
        self,
        op: str = "all_reduce",
        *,
        group: str = "0",
        sizes: Any = ((4096,),),
        out: Any = None,
        dtype: str = "Float",
        state: str = "completed",
        seq: int | None = None,
        p2p: bool = False,
        line: int = 84,
    ) -> RankRecorder:
        """Append one operation; sequence numbers count up by group and kind unless given."""
        same = [e for e in self.entries if e["process_group"][0] == group and e["is_p2p"] == p2p]
        key = "p2p_seq_id" if p2p else "collective_seq_id"
        if seq is None:
            seq = 1 + max((e[key] for e in same), default=0)
        record = len(self.entries)
        self.entries.append(
            {
                "record_id": record,
                "pg_id": list(self.groups).index(group),
                "process_group": (group, "default_pg" if group == "0" else f"desc_{group}"),
                "collective_seq_id": 0 if p2p else seq,
                "p2p_seq_id": seq if p2p else 0,
                "op_id": record + 1,
                "profiling_name": f"nccl:{op}",
                "time_created_ns": 1_795_819_840_000_000_000 + 1_000_000 * record,
                "input_sizes": [list(s) for s in sizes],
                "input_dtypes": [dtype] * len(sizes),
                "output_sizes": [list(s) for s in (sizes if out is None else out)],
                "output_dtypes": [dtype] * len(sizes if out is None else out),
                "state": state,
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": None,
                "retired": state == "completed",
                "timeout_ms": 600000,
                "is_p2p": p2p,
                "frames": [LIBRARY, {**USER, "line": line}],
            }
        )
        return self

    def steps(self, count: int, **keywords: Any) -> RankRecorder:
        """Append `count` completed all-reduces."""
        for _ in range(count):
            self.call(**keywords)
        return self

    def dump(self) -> dict[str, Any]:
        """The dictionary that is pickled."""
        status = {}
        for index, name in enumerate(self.groups):
            own = [e for e in self.entries if e["process_group"][0] == name and not e["is_p2p"]]
            done = [e["collective_seq_id"] for e in own if e["state"] == "completed"]
            status[str(index)] = {
                "last_enqueued_collective": max((e["collective_seq_id"] for e in own), default=-1),
                "last_started_collective": -1,
                "last_completed_collective": max(done, default=-1),
            }
        return {
            "version": self.version,
            "comm_lib_version": "2.28.9",
            "pg_config": {
                name: {
                    "name": name,
                    "desc": "default_pg" if name == "0" else f"desc_{name}",
                    "ranks": str(list(ranks)),
                }
                for name, ranks in self.groups.items()
            },
            "pg_status": status,
            "entries": self.entries,
        }

    def json(self) -> bytes:
        """The same as PyTorch's JSON writer puts it: no frames, all of pg_status as text."""
        dump = self.dump()
        dump["pg_status"] = {
            k: {name: str(n) for name, n in v.items()} for k, v in dump["pg_status"].items()
        }
        dump["entries"] = [{k: v for k, v in e.items() if k != "frames"} for e in self.entries]
        return json.dumps(dump).encode()

    def torchcomms(self) -> bytes:
        """The same as the recorder of torchcomms writes it: keys sorted, threads named, ranks without brackets.

        https://github.com/meta-pytorch/torchcomms/blob/main/comms/torchcomms/hooks/fr/FlightRecorder.cpp (dump_json)
        """
        dump = json.loads(self.json())
        for group in dump["pg_config"].values():
            group["ranks"] = group["ranks"].strip("[]").replace(" ", "")
        for entry in dump["entries"]:
            entry |= {"thread_id": "139872", "thread_name": "python", "p2p_seq_id": 0}
            entry |= {"time_discovered_started_ns": 0, "time_discovered_completed_ns": 0}
            entry["profiling_name"] = entry["profiling_name"].replace("nccl:", "ncclx:")
        return json.dumps(dump, sort_keys=True, separators=(",", ":")).encode()


def world(size: int, count: int = 3, **keywords: Any) -> list[RankRecorder]:
    """`size` ranks that have agreed on `count` all-reduces of one process group."""
    groups = keywords.pop("groups", {"0": tuple(range(size))})
    return [RankRecorder(rank, groups).steps(count, **keywords) for rank in range(size)]


def write(
    folder: Path, recorders: Sequence[RankRecorder], prefix: str = "fr_rank_"
) -> tuple[Artefact, ...]:
    """Dumps as files, named as the recorder names them."""
    artefacts = []
    for recorder in recorders:
        path = folder / f"{prefix}{recorder.rank}"
        path.write_bytes(pickle.dumps(recorder.dump(), protocol=2))
        artefacts.append(Artefact(path.name, path))
    return tuple(artefacts)
