"""What is true of a kind of finding beside its level and category, so that rules need not name kinds?

A signature names its roles in its YAML (`roles: [lost_peer, vague]`), the kinds of readers have theirs in
finding_roles.json. Rules ask `finding.has(FindingRole.LOST_PEER)`; no rule names a signature.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path


class FindingRole(StrEnum):
    """Part that a kind of finding can play. A kind may have several; most have none."""

    # how it was started
    LAUNCH_MISTAKE = "launch_mistake"
    """The processes were started in a way that cannot work: ports and GPUs are then asked for twice."""

    GPU_SHARED = "gpu_shared"
    """Several ranks ask for one GPU, which tells nothing of why."""

    # who is gone
    LOST_PEER = "lost_peer"
    """A survivor says that somebody else is gone."""
    NODE_LOST = "node_lost"
    """An upper layer reports that a node is gone: that, never why."""
    MACHINE_GONE = "machine_gone"
    """A machine is gone with all that ran on it: one rank's end where it had one rank."""
    MACHINE_RECLAIMED = "machine_reclaimed"
    """The cloud takes the machine back."""
    DECLARED_LOST = "declared_lost"
    """A service declares a process lost because its heartbeats stayed away."""
    GROUP_MEMBER = "group_member"
    """A controller reports one member of its group below the member's heading."""
    ACTOR_GONE = "actor_gone"
    """A report of a dead actor, whose rows give pid and address."""
    POD_REMOVED = "pod_removed"
    """A pod was taken away or restarted by its orchestrator."""
    # what it strikes
    WHOLE_HOST = "whole_host"
    """A fault of a whole host: not that of the rank which happens to print for it."""
    STRIKES_HOST = "strikes_host"
    """Strikes whatever runs on the host: one rank's own where the host has one rank."""
    OF_DISK = "of_disk"
    """The first rank that reads or writes on the host meets it first."""
    PORT_DOWN = "port_down"
    """A network port of a host lost its link: it strikes the ranks that send through this port."""
    BELOW_RANKS = "below_ranks"
    """Lies below the ranks and is told by the system: the one rank that failed on it is the first."""
    OF_MACHINE = "of_machine"
    """Told by the kernel, a management controller, a driver or a scheduler about a machine."""
    OF_POD = "of_pod"
    """Told by Kubernetes about a pod or a node."""
    ON_GPU = "on_gpu"
    """Told by CUDA or the driver about what ran on a GPU."""
    GPU_FAULT = "gpu_fault"
    """A fault that either the program or one broken card can bring about."""
    SHARED_FAULT = "shared_fault"
    """What is wrong with a file or the model's shape: it strikes every rank alike."""
    STANDS = "stands"
    """What the whole run lacks: steps go on without it and are worth nothing."""
    STRAGGLER = "straggler"
    """Tells that a rank or GPU is slower than its peers: that, never why."""
    # how a process ends
    NATIVE_CRASH = "native_crash"
    """A crash of native code: it says what kind of code it was only where a stack is shown."""
    ABORT = "abort"
    """What a process prints in the moment in which it ends by SIGABRT."""
    UNCAUGHT_EXCEPTION = "uncaught_exception"
    """An exception of C++ that nobody caught; what it was stands beside it."""
    DEATH_BY_SIGNAL = "death_by_signal"
    """Knows the death of a process by its signal alone."""
    HANDLED_SIGNAL = "handled_signal"
    """A death by a signal that a handler (Open MPI, UCX) reports with host and pid in front."""
    INTERRUPT = "interrupt"
    """A person or a supervisor stopped the run."""
    STOPPED = "stopped"
    """The scheduler stopped the job from outside."""
    TOLD_TO_STOP = "told_to_stop"
    """A launcher was told to stop from outside, by whom it does not know."""
    TIME_LIMIT = "time_limit"
    """The scheduler's time limit ended the job."""
    MEMORY_KILL = "memory_kill"
    """Who killed for memory reports it."""
    HOST_MEMORY_KILL = "host_memory_kill"
    """A monitor of the host's memory killed a worker and lists the users of memory."""
    TASK_MEMORY_KILL = "task_memory_kill"
    """A scheduler's step ran out of memory; it names the task elsewhere."""
    RESTART = "restart"
    """The launcher starts the workers again."""
    SILENT = "silent"
    """Ends no program: where one raised an error of its own, that error ended it."""
    WORKER_STOPPED = "worker_stopped"
    """A signal ended workers of the data loader."""
    WORKER_EXITED = "worker_exited"
    """A worker of the data loader left without a reason."""
    # how much a line says
    WRAPPER = "wrapper"
    """Says that something failed and passes the reason on."""
    BARE_EXCEPTION = "bare_exception"
    """Knows an exception only by its type: a traceback tells more."""
    CONSEQUENCE = "consequence"
    """What the others or the launcher see when one rank has left or stopped."""
    VAGUE = "vague"
    """Names what failed and leaves several reasons open."""
    LATE_ERROR = "late_error"
    """Its Python stack is that of whoever met the error later, not of the code that crashed."""
    UNKNOWN_GPU_ERROR = "unknown_gpu_error"
    """At the start the driver is not ready; in a running job what is left of any fault below CUDA."""
    GPU_ACCESS = "gpu_access"
    """A kernel read or wrote what it may not; code and shapes around it may say which."""
    LAUNCH_REFUSED = "launch_refused"
    """CUDA refused a grid of impossible size."""
    TOLD_BY_SETTINGS = "told_by_settings"
    """A fault without a stack of which a printed setting tells the reason."""
    MISSING_FILE = "missing_file"
    """A path is not there; whose path it is shows the code that asked for it."""
    REFUSAL = "refusal"
    """Names rights or a limit; what was refused stands around it."""
    LIMIT_REACHED = "limit_reached"
    """A limit was reached whose value a pasted check may show."""
    READ_ERROR = "read_error"
    """Storage gave an error to a read or write."""
    # connections and the start of a job
    CONNECTION = "connection"
    """A set-up fault where the run never trained; a consequence where it had been running."""
    NOT_MET = "not_met"
    """Processes of a job did not meet."""
    NOT_MET_AT_START = "not_met_at_start"
    """They had not met yet at all; a wait for a key of the store may be of any time."""
    CLIENTS_MISSING = "clients_missing"
    """The store counts how many of its clients came."""
    NO_STORE = "no_store"
    """Nobody listens where the store of the rendezvous should be."""
    PORT_TAKEN = "port_taken"
    """The port of the master is in use."""
    TRANSPORT = "transport"
    """The transport between ranks failed or waited: NCCL, gloo, InfiniBand, the store, the watchdog."""
    WAITING = "waiting"
    """A collective waited until its time was over."""
    RDMA = "rdma"
    """A queue pair of InfiniBand or RoCE could not be set up or lost its peer."""
    ABSENT = "absent"
    """A rank is missing from a collective."""
    ALL_JOINED = "all_joined"
    """PyTorch's own report says that every listed rank joined the collective."""
    DEVICE_GUESSED = "device_guessed"
    """NCCL was started on a GPU that it guessed from the rank."""
    SAVING_WAIT = "saving_wait"
    """A wait that comes after the training steps, while the model is saved."""
    # memory of GPUs
    OOM_PLAIN = "oom_plain"
    """PyTorch's allocator found no room and says no more."""
    OOM_FRAGMENTED = "oom_fragmented"
    """Much is reserved and unused."""
    OOM_SHARED = "oom_shared"
    """Other processes hold much of the card."""
    OOM_RAW = "oom_raw"
    """CUDA's own error, without the allocator's numbers."""
    OOM_RESTORING = "oom_restoring"
    """While a checkpoint was loaded."""
    OOM_COMPILED = "oom_compiled"
    """XLA's program does not fit; its list of buffers follows."""
    OOM_UNPLACED = "oom_unplaced"
    """Nothing but the numbers says what holds the memory."""
    OOM_TRAINING = "oom_training"
    """Memory ran out for what a step needs."""
    NO_HANDLE = "no_handle"
    """A CUDA library could not be started: no room for its handle, or no context."""
    GPU_BUSY = "gpu_busy"
    """The GPUs cannot be used; another process may own them."""
    # checkpoints and numbers
    KEYS_MISMATCH = "keys_mismatch"
    """Names of weights differ."""
    SHAPES_MISMATCH = "shapes_mismatch"
    """Shapes of weights differ."""
    CHECKPOINT_ABSENT = "checkpoint_absent"
    """The checkpoint asked for is not there."""
    REPLAYS_DATA = "replays_data"
    """Reading up to the position of a resume takes its time and is announced."""
    NEW_HEAD = "new_head"
    """A new head is usual before training, and a fault in a model that was trained already."""
    LOSS_LOST = "loss_lost"
    """A loss that is no number."""


@cache
def roles_of_kind(kind: str) -> frozenset[FindingRole]:
    """Roles of a kind that a reader reports, by name or by the start of its name."""
    exact, starts = _table()
    roles = {role for start, own in starts.items() if kind.startswith(start) for role in own}
    return frozenset(roles | exact.get(kind, frozenset()))


@cache
def _table() -> tuple[Mapping[str, frozenset[FindingRole]], Mapping[str, frozenset[FindingRole]]]:
    rows = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    roles = {kind: frozenset(map(FindingRole, own)) for kind, own in rows.items()}
    exact = {kind: own for kind, own in roles.items() if not kind.endswith("*")}
    return exact, {kind[:-1]: own for kind, own in roles.items() if kind.endswith("*")}
