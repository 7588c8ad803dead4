"""How can a pickle from a stranger be read without running it or letting it eat the machine?

Flight-recorder dumps and CUDA memory snapshots are pickles of plain containers, numbers and text. The
opcodes are scanned first, without building anything: whatever names a class, calls something, or asks
for more than the bytes themselves can hold is refused. Only then is the object built, and measured:
a cycle, deep nesting or a "billion laughs" (small file, huge when written out) is refused as well.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from typing import Any, NoReturn

from firstfault_tools.errors import HostileArtefact, UnreadableArtefact


@dataclass(frozen=True, slots=True)
class PickleLimits:
    """Most a pickle may ask for.

    size_bytes: of the pickle. opcodes: in it. depth: of nested containers. expanded_nodes: values
    that a full walk would visit, shared ones counted each time they are referred to.
    """

    size_bytes: int = 256 * 1024 * 1024
    opcodes: int = 30_000_000
    depth: int = 64
    expanded_nodes: int = 200_000_000


LIMITS = PickleLimits()
# 64-bit integers need nine bytes at most; longer ones only serve hash collisions and slow arithmetic.
LONG_BYTES = 9
LONG_DIGITS = 40

_FIXED = {
    **dict.fromkeys(b"(.01N\x88\x89]ael)t\x85\x86\x87}dsu\x94", 0),
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
_PUTS = {ord("q"): 1, ord("r"): 4}
_NAMES_A_CLASS = {ord("c"): "GLOBAL", ord("i"): "INST", 0x93: "STACK_GLOBAL"}
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


def load_plain_pickle(data: bytes, name: str, limits: PickleLimits = LIMITS) -> Any:
    """Object of a pickle that holds only dict, list, tuple, str, bytes, int, float, bool and None.

    `name` appears in error messages. Raises `HostileArtefact` for anything that names a class, calls
    or would exhaust memory, `UnreadableArtefact` for bytes that are no complete pickle.
    """
    scan_opcodes(data, name, limits)
    try:
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
    _measure(loaded, name, limits)
    return loaded


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
    fixed, counted = _FIXED, _COUNTED
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
    if index > opcodes:
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


def _measure(root: Any, name: str, limits: PickleLimits) -> None:
    """Walk every container once; raise where a consumer's walk would not end in reasonable time."""
    containers = (list, dict, tuple)
    if not isinstance(root, containers):
        return
    weight: dict[int, int] = {}
    height: dict[int, int] = {}
    open_now: set[int] = set()
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        node, leaving = stack.pop()
        key = id(node)
        if leaving:
            inner = [c for c in _children(node) if isinstance(c, containers)]
            total = 1 + len(node) + sum(weight[id(c)] for c in inner)
            depth = 1 + max((height[id(c)] for c in inner), default=0)
            if total > limits.expanded_nodes:
                raise HostileArtefact(
                    f"{name}: expands to over {limits.expanded_nodes} values; refused"
                )
            if depth > limits.depth:
                raise HostileArtefact(f"{name}: nested deeper than {limits.depth}; refused")
            weight[key], height[key] = total, depth
            open_now.discard(key)
            continue
        if key in weight:
            continue
        if key in open_now:
            raise HostileArtefact(f"{name}: a container holds itself; refused")
        open_now.add(key)
        stack.append((node, True))
        for child in _children(node):
            if isinstance(child, containers) and id(child) not in weight:
                if id(child) in open_now:
                    raise HostileArtefact(f"{name}: a container holds itself; refused")
                stack.append((child, False))


def _children(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return [*node.values(), *(key for key in node if isinstance(key, tuple))]
    return list(node)
