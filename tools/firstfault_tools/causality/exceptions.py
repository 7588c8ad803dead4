"""What is a Python exception about that no signature knows? Its category, its page and one sentence.

The type says it for some (an import, a file system error number); for the others it is where the
exception was raised: in code that reads samples, in code that saves or loads a checkpoint, or in the
program itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.message_words import read_category
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category
from firstfault_tools.kind_pages import page_of_kind
from firstfault_tools.log.scan import make_line
from firstfault_tools.log.traceback import EDGE, Frame, Traceback

MAX_MESSAGE = 240
MAX_CODE = 120
_NEEDS_CODE = frozenset(
    {
        *("KeyError", "IndexError", "AssertionError", "TypeError", "AttributeError"),
        *("ValueError", "ZeroDivisionError", "StopIteration"),
    }
)
"""Exceptions whose message seldom names the object; the line of code does."""

FRAMES = 6
"""Innermost frames that are asked what the program was doing."""

_ERRNO = expression(r"\[Errno (\d{1,3})\]")
_BY_ERRNO: dict[int, Category] = {
    1: Category.ENVIRONMENT, 11: Category.ENVIRONMENT, 12: Category.OOM, 13: Category.ENVIRONMENT,
    23: Category.ENVIRONMENT, 24: Category.ENVIRONMENT, 26: Category.ENVIRONMENT,
    28: Category.ENVIRONMENT, 30: Category.ENVIRONMENT, 36: Category.ENVIRONMENT,
    98: Category.COMMUNICATION, 101: Category.COMMUNICATION, 104: Category.COMMUNICATION,
    110: Category.COMMUNICATION, 111: Category.COMMUNICATION, 113: Category.COMMUNICATION,
    32: Category.COMMUNICATION, 107: Category.ENVIRONMENT, 116: Category.ENVIRONMENT,
    121: Category.ENVIRONMENT, 122: Category.ENVIRONMENT,
}  # fmt: skip
"""Linux error numbers (errno.h) by what they are about; 2, 20 and 21 depend on which file it is."""

_BY_TYPE: tuple[tuple[re.Pattern[str], Category], ...] = tuple(
    (expression(pattern), category)
    for pattern, category in (
        (r"OutOfMemory|MemoryError|OutOfResources", Category.OOM),
        (r"ModuleNotFound|ImportError|VersionConflict|DistributionNotFound|PackageNotFound|GatedRepo|RepositoryNotFound|LocalEntryNotFound|OfflineMode", Category.ENVIRONMENT),
        (r"FloatingPointError|LinAlgError", Category.NUMERICAL),
        (r"cv2\.error|LibsndfileError|InvalidDataError|av\.error|DECORDError|FatalSampleError", Category.DATA),
        (r"Connect|BrokenPipe|DistNetwork|DistStore|DistBackend|gaierror|URLError|SSLError", Category.COMMUNICATION),
        (r"ConfigKeyError|ConfigAttributeError|MissingMandatoryValue|InterpolationKeyError|ConfigCompositionException|MissingConfigException|OverrideParse", Category.CODE_BUG),
        (r"InstantiationException|UnsupportedInterpolationType", Category.CODE_BUG),
        (r"ArgumentError|ScannerError|ParserError|MisconfigurationException", Category.CODE_BUG),
        (r"UnicodeDecode|JSONDecode|Parquet|ArrowInvalid|ArrowTypeError|UnidentifiedImage|DecompressionBomb|DatasetGeneration|DataFilesNotFound", Category.DATA),
        (r"DataLossError|OutOfRangeError|SchemaInferenceError|CastError|ReadError|BadGzipFile|LZMAError|VideoReader|DecordError", Category.DATA),
        (r"SafetensorError|UnpicklingError|CheckpointException|CheckpointingException|CheckpointError", Category.CHECKPOINT),
        (r"PermissionError|BlockingIOError", Category.ENVIRONMENT),
        (r"Timeout", Category.COMMUNICATION),
    )
)  # fmt: skip
_REMOTE = expression(
    r"Client(?:Payload|Connector|OSError|Error)|ServerDisconnected|ChunkedEncoding|IncompleteRead|ProtocolError|"
    r"HTTPError|EndpointConnection|ReadTimeout|ConnectTimeout|HfHubHTTP|S3\w*Error|GoogleAPI|ResponseStreaming"
)
"""Types by which clients of a storage or web service say that a transfer broke."""

_PLAIN_BUG = expression(
    r"(?:^|\.)(?:NameError|UnboundLocalError|SyntaxError|IndentationError|TabError|AttributeError|"
    r"TypeError|NotImplementedError|RecursionError|ZeroDivisionError)$"
)
"""Types that speak of the code itself, unless a sample was in hand."""

_SAYS_NOTHING = expression(rf"{_PLAIN_BUG.pattern}|(?:^|\.)(?:KeyError)$")
"""Types whose message is a name or nothing, or that speak of the code whatever it says."""

_NOT_FINITE = expression(
    r"(?i)\bnan\b|\bnon[- ]?finite\b|\bnot finite\b|\binfinite (?:loss|grad)|\binf(?:inity)?\b(?! *\()|loss (?:is )?(?:diverg|explod)"
)
_REFUSED = expression(
    r"(?i)\b(?:permission denied|operation not permitted|read-only file system|no space left on device|disk quota exceeded)\b"
)
"""What the operating system refused, whatever type the program wraps it in."""

_LAUNCH = expression(
    r"['\"](?:(?:LOCAL_|GROUP_)?RANK|(?:LOCAL_)?WORLD_SIZE|MASTER_(?:ADDR|PORT)|SLURM_\w+|PMI\w*_RANK|OMPI_COMM_\w+|NODE_RANK)['\"]"
)
_CHECKPOINT_FILE = expression(
    r"(?i)checkpoint|ckpt|\.safetensors|\.distcp|\.pth?\b|model_states|optim_states|global_step\d|iter_\d{5}|latest_checkpointed"
)
_DATA_FILE = expression(
    r"(?i)\.(?:jsonl?|csv|tsv|parquet|arrow|tar|tfrecords?|jpe?g|png|webp|wav|flac|mp[34]|npy|npz|h5|hdf5|lmdb|idx|zst|mds|txt|nii(?:\.gz)?|dcm)\b|dataset|/data/|/datasets?/|shard"
)
_CHECKPOINT_PLACE = expression(
    r"(?i)checkpoint|ckpt|safetensors|torch/serialization|state_dict|save_pretrained|from_pretrained|distcp|save_model|load_model|save_state|load_state|resume|restore|async_save"
)
_DATA_PLACE = expression(
    r"(?i)utils/data/|data/_utils/|data_?loader|dataset|data_?module|collat|tokeniz|processor\b|processing_|sampler|preprocess|webdataset|streaming/|energon|augment|transforms?\.py|decode_|load_image|read_(?:sample|image|audio|video|record|shard)|parse_(?:line|record|sample|row)|/data/(?!train|main|run|finetune|pretrain)\w+\.py"
)
_RECOMPUTE = expression(
    r"torch/utils/checkpoint|activation_checkpoint|recompute|checkpoint_wrapper"
)
_COMPILE_CACHE = expression(r"triton/runtime/(?:cache|jit)|torch/_inductor/(?:codecache|runtime/)")
_SPAWN = expression(r"multiprocessing/(?:popen_|reduction|context|spawn)")
_PEER = expression(
    r"(?i)\bnccl\b|\bgloo\b|\brccl\b|\bhccl[a-z]*\b|connection (?:reset|closed|refused|aborted)|broken pipe|timed? ?out|watchdog|communicator was aborted|address already in use"
)
_IGNORED = expression(
    r"Exception ignored in|--- Logging error ---|Error in atexit\._run_exitfuncs|Error in sys\.excepthook"
)
_ANNOUNCED = expression(
    r"\b(?:ERROR|CRITICAL|FATAL)\b[\s:|\]-]{1,6}(?:root:)?(?P<words>[A-Za-z].{15,})"
)
_OF_DATA = expression(
    r"(?i)\b(?:shards?|samples?|data ?sets?|data ?loaders?|annotations?|labels?|tokens? in|records?|manifest)\b"
)
_WORKER = expression(
    r"Caught \w+ in (?P<who>[A-Za-z ]*?(?:worker process|thread|replica)) (?P<number>\d+)"
)


_NO_FILE = "No such file or directory"


def classify_traceback(traceback: Traceback, in_worker: bool = False) -> Category:
    """Category of an exception from its error number, its type, its words, then from its place.

    in_worker: raised by dataset code in a worker process of a data loader.
    """
    number = _ERRNO.search(traceback.message)
    if number is not None and (known := _BY_ERRNO.get(int(number[1]))) is not None:
        return known
    if traceback.message.endswith(_NO_FILE) or _FILES.search(traceback.type):
        return _classify_file(traceback, in_worker)
    place = _classify_place(traceback, in_worker)
    for pattern, instead in ((_DAMAGED, Category.DATA), (_REMOTE, Category.ENVIRONMENT)):
        if pattern.search(traceback.type):
            return place if place is not Category.CODE_BUG else instead
    by_type = (category for pattern, category in _BY_TYPE if pattern.search(traceback.type))
    known = next(by_type, None) or _classify_words(traceback, place)
    if known is not None or place is not Category.CODE_BUG or _SAYS_NOTHING.search(traceback.type):
        return known or place
    return read_category(traceback.message) or place


_FILES = expression(r"FileNotFound|NotADirectory|IsADirectory|FileExists")
_DAMAGED = expression(r"Unpickling|ReadError|EOFError|BadZip|zlib|UnicodeDecode|JSONDecode")


def _classify_words(traceback: Traceback, place: Category) -> Category | None:
    """Category by what the exception says."""
    message = traceback.message
    bare = traceback.short_type in ("RuntimeError", "OSError", "Exception")
    logged = place is Category.CODE_BUG and message.startswith("logged")
    rows = (
        (_LAUNCH.search(message), Category.SCHEDULER),
        (bare and _PEER.search(message), Category.COMMUNICATION),
        (_NOT_FINITE.search(message), Category.NUMERICAL),
        (logged and _OF_DATA.search(message), Category.DATA),
        (_REFUSED.search(message), Category.ENVIRONMENT),
        (place is Category.CHECKPOINT and _PLAIN_BUG.search(traceback.type), Category.CODE_BUG),
    )
    return next((category for held, category in rows if held), None)


def _classify_file(traceback: Traceback, in_worker: bool) -> Category:
    """A path that is not there: a checkpoint's, a sample's, or one of the surroundings."""
    if _CHECKPOINT_FILE.search(traceback.message):
        return Category.CHECKPOINT
    place = _classify_place(traceback, in_worker)
    if place is not Category.CODE_BUG:
        return place
    return Category.DATA if _DATA_FILE.search(traceback.message) else Category.ENVIRONMENT


def _classify_place(traceback: Traceback, in_worker: bool) -> Category:
    """What the program was doing, from its innermost frames; the innermost of the user's own first."""
    if in_worker:
        return Category.DATA
    frames = [f for f in traceback.frames[-FRAMES:] if not _RECOMPUTE.search(f.path)]
    if any(_SPAWN.search(f.path) for f in frames):
        return Category.CODE_BUG
    if frames and _COMPILE_CACHE.search(frames[-1].path):
        return Category.ENVIRONMENT
    own = [f for f in reversed(frames) if not f.in_library]
    for frame in (*own[:2], *reversed(frames)):
        words = "/".join(frame.path.split("/")[-3:]) + " " + frame.name
        if _CHECKPOINT_PLACE.search(words):
            return Category.CHECKPOINT
        if _DATA_PLACE.search(words):
            return Category.DATA
    return Category.CODE_BUG


def read_exceptions(incident: LogIncident, named: set[tuple[str, int]]) -> list[Traceback]:
    """Exceptions outside `named`: tracebacks, and lines that show one without its stack.

    What is raised while another one is handled, or only passes on what a worker raised, is left out.
    """
    ignored = ignored_lines(incident)
    originals = {(t.line.file, n) for t in incident.tracebacks for n in range(t.start - 3, t.start)}
    out = [t for t in incident.tracebacks if not t.chained]
    out += _bare_exceptions(incident)
    out = [t if t.message else _with_announcement(incident, t) for t in out]
    return [
        t
        for t in sorted(out, key=lambda t: (t.line.file, t.line.number))
        if (place := (t.line.file, t.line.number)) not in named
        and place not in ignored
        and not (wraps_worker(t) and place in originals)
    ]


def _bare_exceptions(incident: LogIncident) -> Iterator[Traceback]:
    """Exceptions that a line shows without a stack, unless it or the line above sets off other words."""
    told = {(t.line.file, t.line.number) for t in incident.tracebacks}
    bare = incident.signatures.with_role(FindingRole.BARE_EXCEPTION)
    for hit in (h for d in incident.digests for h in d.hits if h.index in bare):
        if (hit.line.file, hit.line.number) in told or _sets_off(hit.line.text):
            continue
        before = next(incident.lines_before(hit.line, 1), None)
        if before is not None and _sets_off(before.text):
            continue
        kind = hit.captures.get("kind") or hit.captures.get("exception") or "AssertionError"
        message = hit.captures.get("message", "")
        told.add((hit.line.file, hit.line.number))
        yield Traceback(hit.line.number, hit.line, kind, message, (), False)


def _with_announcement(incident: LogIncident, traceback: Traceback) -> Traceback:
    """An exception without a word of its own, with what its process logged as an error just before."""
    for line in islice(
        incident.lines_before(replace(traceback.line, number=traceback.start), 4), 4
    ):
        if line.place.key == traceback.line.place.key and (told := _ANNOUNCED.search(line.text)):
            words = " ".join(told["words"].split())
            return replace(traceback, message=f"logged just before it: {words}")
    return traceback


def _sets_off(text: str) -> bool:
    """The line quotes an exception inside other words of a logger and is none by itself."""
    return _IGNORED.search(text) is not None


def ignored_lines(incident: LogIncident) -> frozenset[tuple[str, int]]:
    """Exception lines that the interpreter printed and passed over (in `__del__`, in a logger)."""
    out = set()
    for traceback in incident.tracebacks:
        digest = incident.digest_of(traceback.line.file)
        before = [digest.text_of(traceback.start - n) for n in (1, 2, 3)]
        if any(text is not None and _IGNORED.search(text) for text in before):
            out.add((traceback.line.file, traceback.line.number))
    return frozenset(out)


def page_of(traceback: Traceback, category: Category) -> str | None:
    """Knowledge page with the fixes for an exception that no signature knows."""
    if traceback.frames and _COMPILE_CACHE.search(traceback.frames[-1].path):
        return page_of_kind("traceback.compile_cache")
    if _REMOTE.search(traceback.type) or "[Errno 5]" in traceback.message:
        return page_of_kind("traceback.storage")
    if category is Category.ENVIRONMENT and not re.search(
        r"Import|Module|Package|Distribution", traceback.type
    ):
        return page_of_kind("traceback.files")
    return page_of_kind(f"traceback.{category}")


def find_worker(incident: LogIncident, traceback: Traceback) -> str | None:
    """`DataLoader worker process 3`, where the exception is the original one of such a process."""
    digest = incident.digest_of(traceback.line.file)
    for number in range(traceback.start, max(0, traceback.start - 3), -1):
        text = digest.text_of(number)
        told = _WORKER.search(text) if text is not None else None
        if told is not None:
            return f"{told['who'].strip()} {told['number']}"
    if any("_utils/worker.py" in f.path for f in traceback.frames):
        return "DataLoader worker process"
    return None


def is_echo(traceback: Traceback) -> bool:
    """The pipe of a helper process ended: the other end of it failed first and says why."""
    if "one or more processes exited with non-zero status" in traceback.message:
        return True
    pipe = traceback.short_type in ("EOFError", "BrokenPipeError", "ConnectionResetError")
    return pipe and any("multiprocessing/" in f.path for f in traceback.frames)


def wraps_worker(traceback: Traceback) -> bool:
    """The exception only passes on what a worker raised; the original one stands below it."""
    return _WORKER.search(traceback.message) is not None


def describe_traceback(
    incident: LogIncident, traceback: Traceback, last: Traceback | None, worker: str | None
) -> str:
    """One sentence: type and message, the line of code, where it was raised, and in which process.

    last: the exception that the same chain ended with, where it is another one.
    """
    message = " ".join(traceback.message.split())[:MAX_MESSAGE].rstrip(" .:")
    code = _code(incident, traceback)
    parts = [f"{traceback.short_type}: {message}" if message else traceback.short_type]
    if code and (not message or traceback.short_type in _NEEDS_CODE):
        parts.append(f" at `{code}`")
    where = describe_place(traceback)
    if where:
        parts.append(f", raised in {where}")
    if worker:
        parts.append(f", in {worker}")
    if last is not None and last.type != traceback.type:
        words = " ".join(last.message.split())[:MAX_CODE].rstrip(" .:")
        parts.append(
            f"; it surfaced as {last.short_type}: {words}"
            if words
            else f"; it surfaced as {last.short_type}"
        )
    return "".join(parts)


_PACKAGE = expression(r"(?:site|dist)-packages/(?P<name>\w+)/")
_PASSED_THROUGH = {"wrapper", "inner", "call", "call_impl", "wrapped_call_impl", "decorate_context", "wrap", "wrapped", "lambda", "inner_wrapper"}  # fmt: skip
"""Frames of decorators, which tell nothing of what was called."""

_EVERYWHERE = {"torch", "numpy"}
"""Packages that are in nearly every traceback: their name narrows nothing down."""


def describe_origin(incident: LogIncident, traceback: Traceback) -> str:
    """Where in the user's own code it came from, to follow a sentence that says what it was."""
    own = traceback.user_frame
    if own is None or own.in_library:
        return ""
    if own is not traceback.frames[-1]:
        return f", called from {_frame_words(own)}{_entrance(traceback, own)}"
    code = _code(incident, traceback)
    return f", raised in {_frame_words(own)}" + (f" at `{code}`" if code else "")


def _entrance(traceback: Traceback, own: Frame) -> str:
    """` through load_fsdp_optimizer (accelerate)`: what the program called of a package, where its path names one."""
    for frame in traceback.frames[traceback.frames.index(own) + 1 :]:
        package = _PACKAGE.search(frame.path)
        if package is None or frame.name.strip("_<>").lower() in _PASSED_THROUGH:
            continue
        return (
            "" if package["name"] in _EVERYWHERE else f" through {frame.name} ({package['name']})"
        )
    return ""


def describe_place(traceback: Traceback) -> str:
    """`load (data.py:88), called by main (train.py:12)`: the innermost frame and the user's own."""
    if not traceback.frames:
        return ""
    inner, own = traceback.frames[-1], traceback.user_frame
    if own is None or own is inner:
        return _frame_words(inner)
    return f"{_frame_words(inner)}, called by {_frame_words(own)}"


def _frame_words(frame: Frame) -> str:
    path = frame.path if not frame.in_library else "/".join(frame.path.split("/")[-3:])
    name = frame.name if frame.name not in ("", "<module>") else ""
    return f"{name} ({path}:{frame.line})" if name else f"{path}:{frame.line}"


def _code(incident: LogIncident, traceback: Traceback) -> str:
    """The source line under the innermost frame, where the log shows it."""
    return read_code_line(incident, traceback, traceback.frames[-1]) if traceback.frames else ""


def read_code_line(incident: LogIncident, traceback: Traceback, frame: Frame) -> str:
    """The source line under one frame, where the log shows it."""
    digest = incident.digest_of(traceback.line.file)
    text = digest.text_of(frame.number + 1)
    if text is None:
        return ""
    body = make_line(digest.file, frame.number + 1, text, digest.year).message.strip()
    if body.startswith(EDGE):
        from firstfault_tools.log.boxed import read_code

        body = read_code(body) or ""
    return "" if body.startswith(("File ", traceback.type)) or len(body) < 4 else body[:MAX_CODE]


def last_of_chain(tracebacks: Sequence[Traceback], first: Traceback) -> Traceback | None:
    """The exception that ended the chain which `first` began."""
    chain = [
        t
        for t in tracebacks
        if t.start == first.start and t.line.file == first.line.file and t.chained
    ]
    return chain[-1] if chain else None
