"""What takes most of the time by a table of torch.profiler (`key_averages().table(...)`) in the log?

Names which row leads: waiting for the loader, copies to the GPU, a synchronising read of a scalar, or a
collective. A profile is no fault; it explains slowness that somebody complains of.
"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding
from firstfault_tools.hardware.excerpt import keep_near, quote_line

MARKERS = ("Self CPU %", "Self CUDA %")
_ROW = expression(r"^\s*(?P<name>\S.{0,120}?)\s{2,}(?P<share>\d{1,3}\.\d\d)%\s")
_KINDS = (
    (expression(r"DataLoader\w*\W.{0,60}__next__|enumerate\(DataLoader"), "the DataLoader: the step waits for its input data", "dataloader-stall"),
    (expression(r"aten::item|_local_scalar_dense|cudaStreamSynchronize|cudaDeviceSynchronize|aten::is_nonzero"),
     "synchronisation of the host with the GPU (.item(), printing or branching on a tensor)", "low-mfu"),
    (expression(r"(?i)Memcpy HtoD|aten::to\b|aten::copy_|cudaMemcpyAsync"), "copies between host and GPU", "data-slow"),
    (expression(r"(?i)nccl\w*|c10d::\w+|ProcessGroup"), "collectives: the step waits for communication or for a slower rank", "communication-stall"),
    (expression(r"cudaMalloc|cudaFree"), "allocation of GPU memory (cudaMalloc, cudaFree): the allocator runs dry", "allocator-thrashing"),
)  # fmt: skip
_GAP = expression(r"\s{2,}")
_TIME = expression(r"(\d{1,12}(?:\.\d{1,6})?)(us|ms|s)")
_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}
LEAST = 40.0
SUMMARY_LINES = 4_000
_SUMMED = expression(
    r"^\s*\|\s*(?P<name>[A-Za-z][^|]{2,60}?)\s*\|\s*(?P<seconds>\d{1,9}(?:\.\d{1,6})?)\s*\|\s*(?P<share>\d{1,3}(?:\.\d{1,2})?)\s*%?\s*\|"
)
_SUMMED_KINDS = (
    (expression(r"(?i)nccl|communicat|collective|all-?reduce"), "collectives: the step waits for communication or for a slower rank", "communication-stall"),
    (expression(r"(?i)mem(?:ory|cpy|set)|copy|copies"), "copies between host and GPU", "data-slow"),
    (expression(r"(?i)data|load|input"), "the loader: the step waits for its input data", "dataloader-stall"),
    (expression(r"(?i)other"), "many small kernels of the framework, for instance from a loop over tensors in Python", "low-mfu"),
)  # fmt: skip
# Lightning's simple profiler: action, mean seconds, calls, total seconds, share.
_ACTION = expression(
    r"^\s*\|\s*(?P<name>\S[^|]{2,100}?)\s*\|\s*(?P<mean>\d{1,9}(?:\.\d{1,9})?)\s*\|\s*\d{1,12}\s*\|\s*(?P<seconds>\d{1,9}(?:\.\d{1,6})?)\s*\|\s*(?P<share>\d{1,3}(?:\.\d{1,4})?)\s*\|?\s*$"
)
_ACTIONS = (
    (expression(r"(?i)dataloader_next|fetch_next|get_train_batch|prepare_data"), "the input pipeline: the step waits for the loader to fetch its next batch", "dataloader-stall"),
    (expression(r"(?i)batch_to_device|transfer_batch"), "copies between host and GPU", "data-slow"),
    (expression(r"(?i)save_checkpoint|on_save"), "saving checkpoints", "checkpoint-slow"),
)  # fmt: skip
"""Actions of that profiler that compute nothing; the loops that hold all others are no answer."""

_SAMPLED = expression(
    r"^\s*(?P<own>\d{1,3}\.\d\d)%\s+\d{1,3}\.\d\d%\s+[\d.]+s\s+[\d.]+s\s+(?P<where>\S.{0,80}?\([^()]{1,120}\))\s*$"
)
_CALLS = expression(r"\bfunction calls\b.{0,60} in (?P<total>\d+\.\d+) seconds")
_CALLED = expression(
    r"^\s*\d+(?:/\d+)?\s+(?P<own>\d+\.\d+)\s+\d+\.\d+\s+\d+\.\d+\s+\d+\.\d+\s+(?P<where>\S.{2,120}?)\s*$"
)
_WORK = (
    (expression(r"(?i)decode|imread|jpeg|\bopen\b|PIL|Image"), "decoding of the input on the CPU", "dataloader-stall"),
    (expression(r"(?i)resiz|augment|transform|crop|albument|__getitem__|collate|token"), "preparing the input on the CPU", "dataloader-stall"),
    (expression(r"(?i)\bread|load|h5py|recv|select|\bget\b|wait|queue"), "waiting for or reading data", "data-slow"),
    (expression(r"(?i)\bitem\b|synchronize|\bcpu\b|tolist"), "synchronising the host with the GPU", "low-mfu"),
)  # fmt: skip


def read_times(lines: Sequence[tuple[int, str]]) -> dict[str, float]:
    """Milliseconds by row of the last table: a summary by kind of kernel, or GPU (else CPU) time of its own by operation."""
    columns: list[str] = []
    found: dict[str, float] = {}
    for _, text in lines:
        cells = [c for c in _GAP.split(text.strip()) if c]
        if "Self CPU %" in text and "Name" in cells:
            columns, found = cells, {}
        elif (summed := _SUMMED.match(text[:300])) is not None:
            found[summed["name"].strip()] = 1000 * float(summed["seconds"])
        elif columns and len(cells) == len(columns):
            own = next((n for n in ("Self CUDA", "Self CPU") if n in columns), "")
            time = _TIME.fullmatch(cells[columns.index(own)]) if own else None
            if time is not None:
                found[cells[columns.index("Name")]] = float(time[1]) * _MS[time[2]]
    return found


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The leading row of the last table, where it is no computing."""
    best: tuple[float, int, str, str, str, str] | None = None
    for number, text in keep_near(lines, MARKERS, before=0, after=30)[:2000]:
        row = _ROW.match(text) if "%" in text and len(text) < 1000 else None
        if row is None or float(row["share"]) < LEAST:
            continue
        for pattern, what, page in _KINDS:
            if pattern.search(row["name"]) and (best is None or float(row["share"]) > best[0]):
                best = (float(row["share"]), number, text, row["name"], what, page)
    if best is None:
        return _find_summary(lines, file) or _find_action(lines, file) or _find_sampled(lines, file)
    share, number, text, name, what, page = best
    return (
        Finding.of_slowness(
            kind="setting.profile",
            title=f"by the profile {share:.0f} % of the time is {name}: {what}",
            evidence=(quote_line(file, number, text),),
            page=page,
            weight=round(share / 100, 2),
            facts={"share": share},
        ),
    )


def _find_summary(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """A summary by kind of kernel (`| Communication (NCCL) | 2.312 | 57.9 |`) in which one that computes nothing leads."""
    if not any("Category" in text and "%" in text for _, text in lines[:SUMMARY_LINES]):
        return ()
    for number, text in keep_near(lines, ("Category",), before=0, after=12)[:200]:
        row = _SUMMED.match(text[:300])
        if row is None or float(row["share"]) < LEAST:
            continue
        named = next(((w, p) for e, w, p in _SUMMED_KINDS if e.search(row["name"])), None)
        if named is None:
            continue
        share = float(row["share"])
        title = f"by the profile {share:g} % of the time ({row['seconds']} s) is {row['name'].strip()}: {named[0]}"
        return (
            Finding.of_slowness(
                "setting.profile",
                title,
                (quote_line(file, number, text),),
                weight=round(share / 100, 2),
                page=named[1],
                facts={"share": share},
            ),
        )
    return ()


def _find_action(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The action that computes nothing and takes most of the time by Lightning's simple profiler."""
    best: tuple[float, Finding] | None = None
    for number, text in keep_near(lines, ("Mean duration (s)",), before=0, after=60)[:400]:
        row = _ACTION.match(text[:400])
        if row is None or float(row["share"]) < max(LEAST, best[0] if best else 0.0):
            continue
        named = next(((w, p) for e, w, p in _ACTIONS if e.search(row["name"])), None)
        if named is None:
            continue
        share = float(row["share"])
        name = row["name"].strip().rpartition(".")[2]
        found = Finding.of_slowness(
            "setting.profile",
            f"by the profile {share:.0f} % of the time is {name} ({float(row['mean']):.3g} s a call): {named[0]}",
            (quote_line(file, number, text),),
            weight=round(share / 100, 2),
            page=named[1],
            facts={"share": share},
        )
        best = (share, found)
    return (best[1],) if best is not None else ()


def _find_sampled(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The function in which `py-spy top` sees the process most of the time."""
    for number, text in keep_near(lines, ("%Own   %Total",), before=0, after=12)[:200]:
        row = _SAMPLED.match(text[:300])
        if row is None or float(row["own"]) < LEAST:
            continue
        where = " ".join(row["where"].split())
        what, page = next(
            ((w, p) for e, w, p in _WORK if e.search(where)), ("work on the CPU", "data-slow")
        )
        title = (
            f"py-spy sees the process {float(row['own']):.0f} % of the time in {where}: {what}, one thread's work, while the GPU "
            "waits for the batch; loader workers (num_workers) or cheaper preparation help"
        )
        share = float(row["own"])
        quoted = (quote_line(file, number, text),)
        return (
            Finding.of_slowness(
                "setting.profile",
                title,
                quoted,
                weight=round(share / 100, 2),
                page=page,
                facts={"share": share},
            ),
        )
    return _find_called(lines, file)


def _find_called(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The function with the largest own time in a table of cProfile."""
    near = keep_near(lines, ("function calls",), before=0, after=12)[:200]
    total = next((float(t["total"]) for _, text in near if (t := _CALLS.search(text))), 0.0)
    for number, text in near if total > 0 else ():
        row = _CALLED.match(text[:300])
        if row is None:
            continue
        share = 100 * float(row["own"]) / total
        if share < LEAST - 10:
            return ()
        where = " ".join(row["where"].split())
        moves = expression(r"method '(?:cuda|to|cpu|item|copy_|tolist)' of 'torch").search(where)
        what, page = (
            ("copies between host and GPU, which also wait for the work queued before (synchronisation)", "data-slow")
            if moves
            else next(((w, p) for e, w, p in _WORK if e.search(where)), ("work on the CPU", "data-slow"))
        )  # fmt: skip
        return (
            Finding.of_slowness(
                "setting.profile",
                f"by the profile (cProfile) {share:.0f} % of the time is spent in {where}: {what}",
                (quote_line(file, number, text),),
                weight=round(max(0.5, share / 100), 2),
                page=page,
                facts={"share": round(share)},
            ),
        )
    return ()
