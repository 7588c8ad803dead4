"""A class of ours behaves as one of the standard library's, in all that the project uses."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from typing import Any, ClassVar

import pytest

from firstfault_tools.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Kept:
    """Can be pickled, as what travels between processes must be."""

    name: str
    values: tuple[int, ...] = ()


def _make_classes(decorate: Any) -> dict[str, Any]:
    """The same classes by one decorator or the other."""

    @decorate(frozen=True, slots=True)
    class Frozen:
        a: int
        b: str = "x"
        c: tuple[int, ...] = field(default=(), compare=False, repr=False)
        d: frozenset[int] = field(default_factory=frozenset)

    @decorate(frozen=True, slots=True)
    class Child(Frozen):
        e: float = 0.5

    @decorate(frozen=True)
    class Caching:
        a: int
        b: int = 3

        @cached_property
        def double(self) -> int:
            return self.a * 2

    @decorate(slots=True)
    class Changing:
        a: int
        at: int = field(init=False)
        seen: list[int] = field(default_factory=list)

        def __post_init__(self) -> None:
            self.at = self.a * 2

    @decorate
    class Plain:
        limit: ClassVar[int] = 7
        a: int = 1

    @decorate
    class Bare:
        a: int = 1
        left: int = field(default=4, init=False)

    @decorate(frozen=True, slots=True)
    class Equal:
        a: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

        def __hash__(self) -> int:
            return 1

    @decorate(frozen=True, slots=True, order=True)
    class Ordered:
        a: int

    @decorate(frozen=True, slots=True)
    class Empty:
        pass

    return {k: v for k, v in locals().items() if isinstance(v, type)}


_CASES: tuple[tuple[str, Callable[[dict[str, Any]], Any]], ...] = (
    ("repr", lambda c: [repr(c["Frozen"](1)), repr(c["Child"](1, e=2)), repr(c["Changing"](1))]),
    ("equal", lambda c: [c["Frozen"](1) == c["Frozen"](1, c=(2,)), c["Frozen"](1) == c["Frozen"](2)]),
    ("equal of a child", lambda c: c["Frozen"](1) == c["Child"](1)),
    ("own equal", lambda c: [c["Equal"](1) == c["Equal"](2), hash(c["Equal"](3))]),
    ("hash", lambda c: [hash(c["Frozen"](1)), hash(c["Caching"](1)), hash(c["Empty"]())]),
    ("hash of what changes", lambda c: hash(c["Changing"](1))),
    ("order", lambda c: c["Ordered"](1) < c["Ordered"](2)),
    ("replace", lambda c: repr(dataclasses.replace(c["Child"](1), e=9.0))),
    ("asdict", lambda c: dataclasses.asdict(c["Child"](1))),
    ("fields", lambda c: [f.name for f in dataclasses.fields(c["Child"])]),
    ("fields beside a class variable", lambda c: [f.name for f in dataclasses.fields(c["Plain"])]),
    ("is one", lambda c: [dataclasses.is_dataclass(v) for v in c.values()]),
    ("slots", lambda c: [c["Frozen"].__slots__, c["Child"].__slots__, c["Changing"].__slots__]),
    ("no dict", lambda c: hasattr(c["Child"](1), "__dict__")),
    ("patterns", lambda c: [c["Child"].__match_args__, c["Changing"].__match_args__]),
    ("default of the class", lambda c: [c["Bare"].a, c["Bare"]().left]),
    ("cached", lambda c: c["Caching"](4).double),
    ("copied", lambda c: [repr(copy.copy(c["Frozen"](1))), repr(copy.deepcopy(c["Changing"](2)))]),
    ("own factory each time", lambda c: c["Changing"](1).seen is c["Changing"](1).seen),
    ("set", lambda c: setattr(c["Frozen"](1), "a", 2)),
    ("set in a child", lambda c: setattr(c["Child"](1), "a", 2)),
    ("deleted", lambda c: delattr(c["Caching"](1), "a")),
    ("missing", lambda c: c["Frozen"]()),
    ("too many", lambda c: c["Caching"](1, 2, 3)),
    ("unknown name", lambda c: c["Frozen"](1, z=2)),
    ("by name", lambda c: repr(c["Frozen"](b="q", a=0))),
)  # fmt: skip


@pytest.mark.parametrize("ask", [ask for _, ask in _CASES], ids=[name for name, _ in _CASES])
def test_class_behaves_as_that_of_the_library(ask: Callable[[dict[str, Any]], Any]) -> None:
    assert _outcome(ask, dataclass) == _outcome(ask, dataclasses.dataclass)


def _outcome(ask: Callable[[dict[str, Any]], Any], decorate: Any) -> Any:
    try:
        return ask(_make_classes(decorate))
    except (AttributeError, TypeError) as error:
        return type(error), str(error)


def test_objects_travel_between_processes() -> None:
    kept = Kept("a", (1, 2))
    assert pickle.loads(pickle.dumps(kept)) == kept


@pytest.mark.parametrize(
    ("names", "content"),
    [
        ({"a": "int", "b": "int"}, {"a": 1}),
        ({"a": "list[int]"}, {"a": []}),
    ],
    ids=["default before none", "mutable default"],
)
def test_mistakes_are_told(names: dict[str, str], content: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        dataclass(type("Wrong", (), {"__annotations__": names, **content}))(b=1)


def test_frozen_and_changing_do_not_mix() -> None:
    with pytest.raises(TypeError):

        @dataclass(slots=True)
        class Wrong(Kept):
            more: int = 0


def test_abstract_stays_abstract() -> None:
    @dataclass(frozen=True, slots=True)
    class Shape(ABC):
        side: int

        @abstractmethod
        def area(self) -> int: ...

    with pytest.raises(TypeError):
        Shape(1)  # type: ignore[abstract]
