"""How does a command make hundreds of small classes in a few milliseconds? Their methods are compiled at first use.

`dataclasses.dataclass` compiles six methods for each class when its module is imported: with the 230 classes
that a short log needs, a sixth of a cold command, and most of them never make an object. Here `__init__` is
compiled when the first object is made; the other methods are the same few functions for all classes. What
`dataclasses` offers (`replace`, `fields`, `asdict`, `field`) works on these classes as on its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses
    from abc import update_abstractmethods
    from dataclasses import MISSING, Field, FrozenInstanceError
    from operator import attrgetter

    from firstfault_tools.kept_forms import compile_source

    @dataclasses.dataclass
    class _Example:
        field: int

    _IS_FIELD = dataclasses.fields(_Example)[0]._field_type
    _Parameters = type(_Example.__dataclass_params__)
    _CHOICES = {
        name: getattr(_Example.__dataclass_params__, name) for name in _Parameters.__slots__
    }
    _BEYOND = ("ClassVar", "InitVar", "KW_ONLY")
    """Annotations that only `dataclasses` understands."""

    def dataclass(cls=None, /, *, frozen=False, slots=False, **more):
        """What `dataclasses.dataclass` makes of a class; with other choices than these two, by itself."""

        def decorate(cls):
            if more or _is_beyond(cls):
                return dataclasses.dataclass(cls, frozen=frozen, slots=slots, **more)
            return _make(cls, frozen, slots)

        return decorate if cls is None else decorate(cls)

    def _annotations(cls):
        # `inspect.get_annotations` would have `inspect` imported
        return cls.__dict__.get("__annotations__", {})  # noqa: RUF063

    def _is_beyond(cls):
        named = _annotations(cls)
        return any(
            not isinstance(kind, str) or kind.removeprefix("typing.").startswith(_BEYOND)
            for kind in named.values()
        ) or any(
            isinstance(value, Field) and value.kw_only is True for value in cls.__dict__.values()
        )

    def _make(cls, frozen, slots):
        fields, inherited = {}, set()
        for base in cls.__mro__[-1:0:-1]:
            known = getattr(base, "__dataclass_fields__", None)
            if known is not None:
                fields.update(known)
                if base.__dataclass_params__.frozen is not frozen:
                    raise TypeError(
                        "a frozen dataclass and one that is not cannot inherit from each other"
                    )
            inherited.update(base.__dict__.get("__slots__", ()))
        own = [_read_field(cls, name) for name in _annotations(cls)]
        fields.update((f.name, f) for f in own)
        if slots:
            cls = _with_slots(cls, fields, inherited)
        else:
            for f in own:
                if f.default is not MISSING:
                    setattr(cls, f.name, f.default)
                elif f.name in cls.__dict__:
                    delattr(cls, f.name)
        choices = {**_CHOICES, "frozen": frozen}
        if "slots" in choices:
            choices["slots"] = slots
        cls.__dataclass_params__ = _Parameters(**choices)
        cls.__dataclass_fields__ = fields
        _add_methods(cls, fields, frozen)
        if frozen and slots:
            _add_state(cls, tuple(fields))
        if hasattr(cls, "__abstractmethods__"):
            update_abstractmethods(cls)
        return cls

    def _read_field(cls, name):
        default = cls.__dict__.get(name, MISSING)
        made = default if isinstance(default, Field) else dataclasses.field(default=default)
        if made.default is not MISSING and made.default.__class__.__hash__ is None:
            raise ValueError(f"mutable default {type(made.default)} for field {name}")
        made.name, made.type = name, _annotations(cls)[name]
        made._field_type, made.kw_only = _IS_FIELD, False
        return made

    def _with_slots(cls, fields, inherited):
        """The class anew: slots are given at birth only."""
        content = {
            key: value
            for key, value in cls.__dict__.items()
            if key not in fields and key not in ("__dict__", "__weakref__")
        }
        content["__slots__"] = tuple(name for name in fields if name not in inherited)
        made = type(cls)(cls.__name__, cls.__bases__, content)
        made.__qualname__ = cls.__qualname__
        return made

    def _add_methods(cls, fields, frozen):
        own = cls.__dict__
        listed = fields.values()
        if "__init__" not in own:
            cls.__init__ = _delay_init(cls, fields, frozen)
        if "__repr__" not in own:
            cls.__repr__ = _write
        compared = tuple(f.name for f in listed if f.compare)
        take = _taker(compared)
        own_hash = own.get("__hash__", MISSING)
        if own_hash is MISSING or (own_hash is None and "__eq__" in own):
            hashed = tuple(f.name for f in listed if (f.compare if f.hash is None else f.hash))
            told = take if hashed == compared else _taker(hashed)
            cls.__hash__ = _hash_by(told) if frozen else None
        if "__eq__" not in own:
            cls.__eq__ = _equal_by(take)
        if frozen:
            cls.__setattr__, cls.__delattr__ = _refusals(cls, fields)
        if "__match_args__" not in own:
            cls.__match_args__ = tuple(f.name for f in listed if f.init)

    def _delay_init(cls, fields, frozen):
        def __init__(self, *given, **named):
            made = _compile_init(cls, fields, frozen)
            cls.__init__ = made
            made(self, *given, **named)

        return __init__

    def _compile_init(cls, fields, frozen):
        names = {"_missing": MISSING, "_set": object.__setattr__}
        parameters, lines, last = ["self"], [], ""
        for number, f in enumerate(fields.values()):
            parameter, value = _spell(f, number, names, slotted="__slots__" in cls.__dict__)
            if parameter:
                if "=" in last and "=" not in parameter:
                    raise TypeError(f"{f.name!r} without a default follows one with a default")
                parameters.append(last := parameter)
            if value:
                told = f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}"
                lines.append(told)
        if hasattr(cls, "__post_init__"):
            lines.append("self.__post_init__()")
        body = "\n  ".join(lines or ["pass"])
        made = {}
        # the source holds names of fields, which are identifiers, and numbers
        source = f"def __init__({', '.join(parameters)}):\n  {body}"
        exec(compile_source(source), names, made)  # noqa: S102
        init = made["__init__"]
        init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
        return init

    def _spell(f, number, names, slotted):
        """(parameter, value) of a field in the source of `__init__`; '' for what is not there."""
        if f.default_factory is not MISSING:
            names[f"_make_{number}"] = f.default_factory
            if not f.init:
                return "", f"_make_{number}()"
            return f"{f.name}=_missing", f"_make_{number}() if {f.name} is _missing else {f.name}"
        if f.default is MISSING:
            return (f.name, f.name) if f.init else ("", "")
        names[f"_default_{number}"] = f.default
        if f.init:
            return f"{f.name}=_default_{number}", f.name
        return "", f"_default_{number}" if slotted else ""

    def _write(self):
        listed = (f for f in self.__dataclass_fields__.values() if f.repr)
        told = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in listed)
        return f"{self.__class__.__qualname__}({told})"

    def _taker(names):
        """A function that gives an object's values as a tuple."""
        if len(names) > 1:
            return attrgetter(*names)
        if not names:
            return lambda _: ()
        take = attrgetter(names[0])
        return lambda made: (take(made),)

    def _equal_by(take):
        def __eq__(self, other):
            if other.__class__ is self.__class__:
                return take(self) == take(other)
            return NotImplemented

        return __eq__

    def _hash_by(take):
        def __hash__(self):
            return hash(take(self))

        return __hash__

    def _refusals(cls, fields):
        def __setattr__(self, name, value):
            if type(self) is cls or name in fields:
                raise FrozenInstanceError(f"cannot assign to field {name!r}")
            super(cls, self).__setattr__(name, value)

        def __delattr__(self, name):
            if type(self) is cls or name in fields:
                raise FrozenInstanceError(f"cannot delete field {name!r}")
            super(cls, self).__delattr__(name)

        return __setattr__, __delattr__

    def _add_state(cls, names):
        def __getstate__(self):
            return [getattr(self, name) for name in names]

        def __setstate__(self, state):
            for name, value in zip(names, state, strict=True):
                object.__setattr__(self, name, value)

        if "__getstate__" not in cls.__dict__:
            cls.__getstate__ = __getstate__
        if "__setstate__" not in cls.__dict__:
            cls.__setstate__ = __setstate__
