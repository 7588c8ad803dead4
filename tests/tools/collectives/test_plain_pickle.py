from __future__ import annotations

import collections
import datetime
import os
import pickle
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.collectives.plain_pickle import (
    LIMITS,
    PickleLimits,
    _is_plain,
    load_plain_pickle,
    scan_opcodes,
)
from firstfault_tools.errors import HostileArtefact, ToolError, UnreadableArtefact

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.integers(-(2**63), 2**63), inner)
        | st.tuples(inner, inner)
    ),
    max_leaves=30,
)


class Runs:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], tuple(self.call[1:])


@settings(deadline=None)
@given(PLAIN, st.sampled_from((3, 4, 5)))
def test_plain_values_round_trip(value: Any, protocol: int) -> None:
    assert load_plain_pickle(pickle.dumps(value, protocol), "x") == value


@settings(deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.text(), st.lists), st.integers(0, 2))
def test_old_protocols_round_trip(value: Any, protocol: int) -> None:
    assert load_plain_pickle(pickle.dumps(value, protocol), "x") == value


HOSTILE = {
    "system": (Runs(os.system, "touch /tmp/firstfault-pwned"), "system"),
    "eval": (Runs(eval, "1+1"), "eval"),
    "ordered": (collections.OrderedDict(a=1), "OrderedDict"),
    "datetime": ({"t": datetime.datetime(2026, 1, 1)}, "datetime"),
    "class": (Runs, "Runs"),
    "set": ({1, 2}, ""),
    "bytearray": (bytearray(b"x" * 10), ""),
    "bigint": (1 << 4000, "integer"),
    "complex": (1j, "complex"),
}


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", HOSTILE)
def test_code_and_classes_are_refused(name: str, protocol: int) -> None:
    value, word = HOSTILE[name]
    with pytest.raises(HostileArtefact) as caught:
        load_plain_pickle(pickle.dumps(value, protocol), "fr_rank_0")
    assert word in str(caught.value)
    assert "fr_rank_0" in str(caught.value)
    assert not os.path.exists("/tmp/firstfault-pwned")


def _laughs(levels: int) -> bytes:
    node: Any = ["ha"] * 10
    for _ in range(levels):
        node = [node] * 10
    return pickle.dumps(node, 2)


def _nested(depth: int) -> bytes:
    return b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b"."


def _own_cycle() -> bytes:
    node: list[Any] = []
    node.append(node)
    return pickle.dumps({"entries": node}, 2)


BOMBS = {
    "memo index": b"\x80\x02]r\xff\xff\xff\x7f.",
    "memo index as text": b"]p999999999\n.",
    "long of a gigabyte": b"\x80\x02\x8b\x00\x00\x00\x40" + b"x" * 100 + b".",
    "bytearray of a terabyte": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".",
    "billion laughs": _laughs(12),
    "deep nesting": _nested(100_000),
    "own cycle": _own_cycle(),
    "deep tuple as a key": b"\x80\x02}N" + b"\x85" * 200_000 + b"Ns.",
    "deep tuple through the memo": b"\x80\x02}N" + b"\x85q\x00h\x00\x86" * 60_000 + b"Ns.",
    "digits": b"L" + b"9" * 100_000 + b"L\n.",
    "persistent id": b"Psomething\n.",
    "extension": b"\x80\x02\x82\x01.",
    "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.",
    "inst": b"(S'id'\nios\nsystem\n.",
    "obj": b"(cos\nsystem\nS'id'\no.",
}


@each_row("name", BOMBS)
def test_bombs_are_refused_in_little_memory(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(HostileArtefact):
            load_plain_pickle(BOMBS[name], "x")
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024 * 1024
    finally:
        tracemalloc.stop()


@each_row(
    "data",
    [
        b"",
        b".",
        b"\x80",
        b"\x80\x02",
        b"\x80\x02X\xff\xff\xff\xffabc.",
        b"\x80\x05\x8d" + struct.pack("<Q", 1 << 62) + b"abc.",
        b"\x80\x02h\x05.",
        b"\x80\x02a.",
        b"\xff\xfe",
        b"~hello",
    ],
)
def test_broken_pickles_are_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableArtefact):
        load_plain_pickle(data, "x")


def test_limits_hold() -> None:
    data = pickle.dumps(list(range(1000)), 2)
    with pytest.raises(HostileArtefact, match="opcodes"):
        load_plain_pickle(data, "x", PickleLimits(opcodes=100))
    with pytest.raises(HostileArtefact, match="limit"):
        load_plain_pickle(data, "x", PickleLimits(size_bytes=100))


def test_many_shallow_tuples_are_fine() -> None:
    value = [{"process_group": (str(n), "default_pg")} for n in range(5000)]
    for protocol in range(6):
        assert load_plain_pickle(pickle.dumps(value, protocol), "x") == value


@settings(deadline=None)
@given(PLAIN, st.sampled_from((3, 4, 5)))
def test_tuple_depth_check_accepts_what_is_shallow(value: Any, protocol: int) -> None:
    limits = PickleLimits(tuple_depth=40)
    body = pickle.dumps([value, [(n,) for n in range(50)]], protocol)
    assert load_plain_pickle(body, "x", limits) == [value, [(n,) for n in range(50)]]


@settings(deadline=None, max_examples=400)
@given(st.binary(max_size=200))
def test_random_bytes_raise_tool_errors_only(data: bytes) -> None:
    for body in (data, b"\x80\x02" + data, b"\x80\x04" + data + b"."):
        try:
            load_plain_pickle(body, "x")
        except ToolError:
            continue


@settings(deadline=None, max_examples=400)
@given(data=st.data())
def test_mutated_pickles_raise_tool_errors_only(data: st.DataObject) -> None:
    body = bytearray(pickle.dumps({"a": [1, "b", (2.0, None)], "c": {"d": b"e"}}, 4))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        load_plain_pickle(bytes(body), "x")
    except ToolError:
        return


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_the_quick_look_never_passes_what_the_scan_refuses(data: st.DataObject) -> None:
    value = data.draw(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=300),
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.tuples(inner, inner)
                | st.dictionaries(st.text(max_size=20), inner, max_size=4)
            ),
            max_leaves=12,
        )
    )
    body = bytearray(pickle.dumps(value, data.draw(st.integers(2, 5))))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    if _is_plain(bytes(body), LIMITS):
        assert scan_opcodes(bytes(body), "x") > 0


def test_the_quick_look_passes_an_ordinary_dump() -> None:
    entry = {
        "record_id": 1 << 40,
        "frames": [{"name": "step"}],
        "process_group": ("0", "a"),
        "t": 1.5,
    }
    for protocol in (2, 4, 5):
        assert _is_plain(
            pickle.dumps({"entries": [entry] * 3, "long": "x" * 9000}, protocol), LIMITS
        )
    assert not _is_plain(pickle.dumps([object()]), LIMITS)
