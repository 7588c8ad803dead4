"""How can a pickle from a stranger be read without running it or letting it eat the machine?

Flight-recorder dumps and CUDA memory snapshots are pickles of plain containers, numbers and text. The
opcodes are scanned first, without building anything: whatever names a class, calls something, or asks
for more than the bytes themselves can hold is refused. Only then is the object built, and measured:
a cycle, deep nesting or a "billion laughs" (small file, huge when written out) is refused as well.
"""

from __future__ import annotations

import gc
import io
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import HostileArtefact, UnreadableArtefact


@dataclass(frozen=True, slots=True)
class PickleLimits:
    """Most a pickle may ask for.

    size_bytes: of the pickle. opcodes: in it. depth: of nested containers. tuple_depth: of tuples in tuples,
    checked before anything is built, since the hash of a deep one overflows the C stack.
    expanded_nodes: values
    that a full walk would visit, shared ones counted each time they are referred to.
    """

    size_bytes: int = 256 * 1024 * 1024
    opcodes: int = 30_000_000
    depth: int = 64
    tuple_depth: int = 5000
    expanded_nodes: int = 200_000_000


LIMITS = PickleLimits()
# 64-bit integers need nine bytes at most; longer ones only serve hash collisions and slow arithmetic.
LONG_BYTES = 9
LONG_DIGITS = 40
# A memo of this many places is 4 MiB: no need to count up to it.
FREE_MEMO = (1 << 19) - 1

_FIXED = {
    **dict.fromkeys(b"(.01N\x88\x89]ael)}dsu\x94", 0),
    ord("K"): 1,
    ord("M"): 2,
    ord("J"): 4,
    ord("G"): 8,
    ord("h"): 1,
    ord("j"): 4,
    0x80: 1,
    0x95: 8,
}
_COUNTED = {
    ord("U"): 1,
    ord("C"): 1,
    0x8C: 1,
    ord("T"): 4,
    ord("B"): 4,
    ord("X"): 4,
    0x8D: 8,
    0x8E: 8,
}
_TEXT = frozenset((0x8C, 0x8D, ord("X"), ord("U"), ord("T")))
_LINE = frozenset(b"ILFSVpg")
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3, ord("t"): 0}
_PUTS = {ord("q"): 1, ord("r"): 4}
_NAMES_A_CLASS = {ord("c"): "GLOBAL", ord("i"): "INST", 0x93: "STACK_GLOBAL"}
_CONTAINERS = frozenset((list, dict, tuple))
_FORBIDDEN = {
    ord("R"): "REDUCE (a call)",
    ord("b"): "BUILD (object state)",
    ord("o"): "OBJ (an instance)",
    ord("P"): "PERSID",
    ord("Q"): "BINPERSID",
    0x81: "NEWOBJ (an instance)",
    0x92: "NEWOBJ_EX (an instance)",
    0x82: "EXT1 (a registered class)",
    0x83: "EXT2 (a registered class)",
    0x84: "EXT4 (a registered class)",
    0x96: "BYTEARRAY8",
    0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER",
    0x8F: "EMPTY_SET",
    0x90: "ADDITEMS",
    0x91: "FROZENSET",
    ord("2"): "DUP",
}


def load_plain_pickle(
    data: bytes, name: str, limits: PickleLimits = LIMITS, measured: bool = True
) -> Any:
    """Object of a pickle that holds only dict, list, tuple, str, bytes, int, float, bool and None.

    `name` appears in error messages. measured: refuse cycles, deep nesting and shared containers that
    a full walk would not end on; only a caller that looks at each container once may do without.
    Raises `HostileArtefact` for anything that names a class, calls
    or would exhaust memory, `UnreadableArtefact` for bytes that are no complete pickle.
    """
    if not _is_plain(data, limits):
        scan_opcodes(data, name, limits)
    try:
        with pause_collection():
            loaded = _PlainUnpickler(io.BytesIO(data)).load()
    except HostileArtefact:
        raise
    except (
        pickle.UnpicklingError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        EOFError,
        OverflowError,
        MemoryError,
        RecursionError,
    ) as error:
        raise UnreadableArtefact(
            f"{name}: not a complete pickle ({type(error).__name__}: {error}); copy the file again"
        ) from error
    if measured:
        _measure(loaded, name, limits)
    return loaded


@contextmanager
def pause_collection() -> Iterator[None]:
    """Switch the cycle collector off for a while."""
    # A hundred thousand new containers set off the cycle collector again and again, for nothing.
    active = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if active:
            gc.enable()


@cache
def _plain_run() -> re.Pattern[bytes]:
    """A run of opcodes that need no look: constants, short texts, small memo indices, containers.

    Tuples and STOP are left out, since the scan counts the one and ends at the other.
    """
    # Names of keys are about fourteen bytes long: the likely lengths are tried first.
    lengths = sorted(range(256), key=lambda n: abs(n - 14))

    def texts(after_length: bytes) -> bytes:
        return b"|".join(
            re.escape(bytes([n])) + after_length + (b".{%d}" % n if n else b"") for n in lengths
        )

    return re.compile(
        rb"(?s:[(01N\x88\x89\]ael)}dsu\x94]|[Khq].|M..|[Jj].{4}|G.{8}|r..[\x00-\x07]\x00"
        rb"|\x8a(?:\x01.|\x02..|\x03...|\x04.{4}|\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8})"
        rb"|\x8c(?:" + texts(b"") + rb")|X(?:" + texts(rb"\x00\x00\x00") + rb"))*+"
    )


def _is_plain(data: bytes, limits: PickleLimits) -> bool:
    """Whether the scan would pass `data`, told ten times faster; False where it has to look itself.

    Counts bytes where the scan counts opcodes, so it says yes only where the scan does.
    """
    size, position, tuples = len(data), 0, 0
    if size > min(limits.size_bytes, limits.opcodes):
        return False
    run = _plain_run()
    while tuples <= limits.tuple_depth:
        found = run.match(data, position)
        position = found.end() if found else position
        code = data[position] if position < size else 0
        if code in _TUPLES:
            tuples += 1
            position += 1
        elif code in (0x80, 0x95):
            position += 1 + _FIXED[code]
        elif code == 0x58:
            # A text of 256 bytes or more, such as the list of a thousand ranks.
            position += 5 + int.from_bytes(data[position + 1 : position + 5], "little")
        else:
            return code == 0x2E
    return False


class _PlainUnpickler(pickle.Unpickler):
    """Second lock behind the scan: builds no class whatever the opcodes say."""

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise HostileArtefact(f"the pickle asks for the class {module_name}.{global_name}; refused")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise HostileArtefact("the pickle refers to an outside object; refused")


def scan_opcodes(data: bytes, name: str, limits: PickleLimits = LIMITS) -> int:
    """Number of opcodes of a pickle, after checking each; builds nothing.

    Raises the errors of `load_plain_pickle`.
    """
    size = len(data)
    if size > limits.size_bytes:
        raise HostileArtefact(
            f"{name}: {size} bytes of pickle, the limit is {limits.size_bytes}; send a smaller dump"
        )
    position, opcodes = 0, 0
    before_last, last = (0, 0), (0, 0)
    fixed, counted, tuples = _FIXED, _COUNTED, _TUPLES
    made = 0
    while position < size:
        code = data[position]
        position += 1
        opcodes += 1
        if opcodes > limits.opcodes:
            raise HostileArtefact(f"{name}: more than {limits.opcodes} pickle opcodes; refused")
        width = fixed.get(code)
        if width is not None:
            position += width
            if code == 0x2E:
                if position > size:
                    break
                if made > limits.tuple_depth:
                    _check_tuple_depth(data, name, limits)
                return opcodes
            continue
        width = counted.get(code)
        if width is not None:
            length = int.from_bytes(data[position : position + width], "little")
            position += width
            if length > size - position:
                break
            if code in _TEXT:
                before_last, last = last, (position, length)
            position += length
            continue
        if code in tuples:
            made += 1
            continue
        width = _PUTS.get(code)
        if width is not None:
            index = int.from_bytes(data[position : position + width], "little")
            _check_memo(index, opcodes, name)
            position += width
        elif code in _LINE:
            end = data.find(b"\n", position)
            if end < 0:
                break
            _check_line(code, data[position:end], opcodes, name)
            position = end + 1
        elif code in (0x8A, 0x8B):
            width = 1 if code == 0x8A else 4
            length = int.from_bytes(data[position : position + width], "little")
            if length > LONG_BYTES:
                raise HostileArtefact(f"{name}: an integer of {length} bytes; refused")
            position += width + length
        else:
            recent = [data[start : start + min(n, 100)] for start, n in (before_last, last) if n]
            _refuse(code, data, position, recent, name)
    raise UnreadableArtefact(
        f"{name}: the pickle breaks off at byte {min(position, size)} of {size}; copy the file again"
    )


def _check_memo(index: int, opcodes: int, name: str) -> None:
    # The unpickler's memo is an array as long as its highest index: one opcode could ask for gigabytes.
    if index > max(opcodes, FREE_MEMO):
        raise HostileArtefact(f"{name}: memo index {index} after {opcodes} opcodes; refused")


def _check_line(code: int, text: bytes, opcodes: int, name: str) -> None:
    if code in b"IL" and len(text) > LONG_DIGITS:
        raise HostileArtefact(f"{name}: an integer of {len(text)} digits; refused")
    if code == ord("p"):
        if not text.isdigit() or len(text) > 12:
            raise UnreadableArtefact(f"{name}: a malformed memo index; copy the file again")
        _check_memo(int(text), opcodes, name)


def _refuse(code: int, data: bytes, position: int, recent: list[bytes], name: str) -> NoReturn:
    if code in _NAMES_A_CLASS:
        if code == 0x93:
            words = recent
        else:
            words = data[position : position + 400].split(b"\n")[:2]
        wanted = ".".join(w[:100].decode("utf-8", "backslashreplace") for w in words) or "a class"
        raise HostileArtefact(
            f"{name}: the pickle asks for {wanted} ({_NAMES_A_CLASS[code]}); only plain containers, "
            "numbers and text are read. Nothing was run; ask where this file comes from"
        )
    if code in _FORBIDDEN:
        raise HostileArtefact(
            f"{name}: the pickle uses {_FORBIDDEN[code]} at byte {position - 1}; only plain "
            "containers, numbers and text are read. Nothing was run"
        )
    raise UnreadableArtefact(
        f"{name}: byte {position - 1} is no pickle opcode; copy the file again"
    )


def _check_tuple_depth(data: bytes, name: str, limits: PickleLimits) -> None:
    """Follow the opcodes with the depth of tuples in place of values; `data` has been scanned."""
    stack: list[int] = []
    marks: list[int] = []
    memo: dict[int, int] = {}
    position = 0
    try:
        while (code := data[position]) != 0x2E:
            position += 1
            if code in _TUPLES:
                count = _TUPLES[code]
                start = len(stack) - count if count else marks.pop()
                depth = 1 + max(stack[start:], default=0)
                if depth > limits.tuple_depth:
                    raise HostileArtefact(f"{name}: tuples nested deeper than {limits.tuple_depth}")
                stack[start:] = [depth]
            elif code in b"(1deul0as":
                _drop_values(code, stack, marks)
            elif code in _PUTS or code in b"p\x94":
                index = len(memo)
                if code != 0x94:
                    index, position = _operand(data, code, position)
                memo[index] = stack[-1]
            elif code in b"hjg":
                index, position = _operand(data, code, position)
                stack.append(memo[index])
            else:
                position = _skip(data, code, position)
                if code not in (0x80, 0x95):
                    stack.append(0)
    except (IndexError, KeyError, ValueError) as error:
        raise UnreadableArtefact(
            f"{name}: the pickle is damaged near byte {position}; copy the file again"
        ) from error


def _drop_values(code: int, stack: list[int], marks: list[int]) -> None:
    """Apply an opcode that marks a place or takes values off, as into the container below them."""
    if code in b"(":
        marks.append(len(stack))
    elif code in b"0a":
        stack.pop()
    elif code in b"s":
        del stack[-2:]
    else:
        stack[marks.pop() :] = [0] if code in b"ld" else []


def _operand(data: bytes, code: int, position: int) -> tuple[int, int]:
    if code in _LINE:
        end = data.index(b"\n", position)
        return int(data[position:end]), end + 1
    width = 1 if code in b"qh" else 4
    return int.from_bytes(data[position : position + width], "little"), position + width


def _skip(data: bytes, code: int, position: int) -> int:
    """Position behind the operand of an opcode that pushes a value or nothing."""
    if code in _FIXED:
        return position + _FIXED[code]
    if code in _LINE:
        return data.index(b"\n", position) + 1
    width = _COUNTED.get(code, 1 if code == 138 else 4)
    return position + width + int.from_bytes(data[position : position + width], "little")


def _measure(root: Any, name: str, limits: PickleLimits) -> None:
    """Walk every container once; raise where a consumer's walk would not end in reasonable time."""
    if type(root) not in _CONTAINERS:
        return
    weight: dict[int, tuple[int, int]] = {}
    opened = {id(root)}
    # One row per open container: identity, what is left of its children, nodes so far, depth so far.
    stack: list[list[Any]] = [[id(root), iter(_children(root)), 1 + len(root), 0]]
    while stack:
        row = stack[-1]
        for child in row[1]:
            if type(child) not in _CONTAINERS:
                continue
            key = id(child)
            known = weight.get(key)
            if known is None:
                if key in opened:
                    raise HostileArtefact(f"{name}: a container holds itself; refused")
                opened.add(key)
                stack.append([key, iter(_children(child)), 1 + len(child), 0])
                break
            row[2] += known[0]
            row[3] = max(row[3], known[1])
        else:
            stack.pop()
            total, depth = row[2], row[3] + 1
            if total > limits.expanded_nodes:
                raise HostileArtefact(
                    f"{name}: expands to over {limits.expanded_nodes} values; refused"
                )
            if depth > limits.depth:
                raise HostileArtefact(f"{name}: nested deeper than {limits.depth}; refused")
            weight[row[0]] = (total, depth)
            opened.discard(row[0])
            if stack:
                stack[-1][2] += total
                stack[-1][3] = max(stack[-1][3], depth)


def _children(node: Any) -> Any:
    # Keys cannot hold containers other than tuples, whose depth the scan has bounded.
    return node.values() if type(node) is dict else node
