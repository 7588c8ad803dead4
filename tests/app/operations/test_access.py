"""Does nobody come in who should not, and does the page stay at home without a login?"""

from __future__ import annotations

import pytest
from tests.rows import each_row

from firstfault.access import (
    MOST_GUESSES,
    AccessDenied,
    Door,
    Mode,
    Role,
    Visitor,
    check_binding,
    is_loopback,
)
from firstfault.errors import UsageError
from firstfault.settings import Settings

HEADER, ROLES = "X-Forwarded-User", "X-Role"


def make(**values: object) -> Settings:
    return Settings(**values)  # type: ignore[arg-type]


def proxy(**values: object) -> Settings:
    return make(proxy_user_header=HEADER, proxy_role_header=ROLES, **values)


LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]", "127.8.8.8")
ELSEWHERE = ("0.0.0.0", "::", "10.0.0.4", "example.org", "", "localhost.evil.org")


@each_row(("address", "local"), [(a, True) for a in LOOPBACK] + [(a, False) for a in ELSEWHERE])
def test_only_loopback_is_served_without_a_login(address: str, local: bool) -> None:
    assert is_loopback(address) is local
    if local:
        check_binding(make(), address)
    else:
        with pytest.raises(UsageError, match="FIRSTFAULT_PASSWORD"):
            check_binding(make(), address)
    check_binding(make(password="secret"), address)
    check_binding(proxy(), address)


def test_this_machine_needs_no_login() -> None:
    visitor = Door(make()).meet([], None)
    assert visitor == Visitor("", Role.APPROVE)


@each_row(
    ("role", "needed", "may"),
    [(a, b, list(Role).index(a) >= list(Role).index(b)) for a in Role for b in Role],
)
def test_each_role_includes_those_below(role: Role, needed: Role, may: bool) -> None:
    if may:
        Visitor("x", role).require(needed)
    else:
        with pytest.raises(AccessDenied, match=needed.value):
            Visitor("x", role).require(needed)


def test_passwords_give_roles() -> None:
    door = Door(make(password="ärger", view_password="look"))
    assert door.mode is Mode.PASSWORD
    assert door.meet([(HEADER, "root")], None) is None
    assert door.sign_in("ärger").role is Role.APPROVE
    assert door.sign_in("look").role is Role.VIEW


@each_row("guess", ["", "Look", "look ", "look\0", "\ud800"])
def test_wrong_passwords_are_refused(guess: str) -> None:
    with pytest.raises(AccessDenied, match="wrong"):
        Door(make(password="secret", view_password="look")).sign_in(guess)


def test_an_empty_view_password_opens_nothing() -> None:
    with pytest.raises(AccessDenied):
        Door(make(password="secret")).sign_in("")


def test_guessing_is_slowed_down() -> None:
    now = [0.0]
    door = Door(make(password="secret"), clock=lambda: now[0])
    for _ in range(5):
        with pytest.raises(AccessDenied, match="wrong"):
            door.sign_in("guess")
    with pytest.raises(AccessDenied, match="too many"):
        door.sign_in("secret")
    now[0] += 2.1
    with pytest.raises(AccessDenied, match="wrong"):
        door.sign_in("guess")
    now[0] += 2.1
    with pytest.raises(AccessDenied, match="too many"):
        door.sign_in("secret")
    now[0] += 2.1
    assert door.sign_in("secret").role is Role.APPROVE
    assert door.sign_in("secret").role is Role.APPROVE


@each_row(
    ("headers", "peer", "role"),
    [
        ({HEADER: "ada"}, "127.0.0.1", Role.VIEW),
        ({HEADER.lower(): "ada", ROLES.upper(): "Approve"}, "127.0.0.1", Role.APPROVE),
        ({HEADER: "ada", ROLES: "investigate"}, None, Role.INVESTIGATE),
        ({HEADER: "ada", ROLES: "superuser"}, "::1", Role.VIEW),
        ({HEADER: "ada"}, "::ffff:127.0.0.1", Role.VIEW),
    ],
)
def test_a_proxy_names_the_user(headers: dict[str, str], peer: str | None, role: Role) -> None:
    assert Door(proxy()).meet(headers.items(), peer) == Visitor("ada", role)


@each_row(
    ("headers", "peer"),
    [
        ({}, "127.0.0.1"),
        ({HEADER: "  "}, "127.0.0.1"),
        ({HEADER: "ada", ROLES: "approve"}, "10.0.0.9"),
        ({HEADER: "ada"}, "no address"),
    ],
)
def test_headers_from_elsewhere_are_not_believed(headers: dict[str, str], peer: str) -> None:
    with pytest.raises(AccessDenied):
        Door(proxy()).meet(headers.items(), peer)


def test_an_unknown_role_never_becomes_the_default() -> None:
    door = Door(proxy(default_role="approve"))
    met = door.meet([(HEADER, "ada"), (ROLES, "nobody")], None)
    assert met is not None
    assert met.role is Role.VIEW


@each_row(
    ("values", "name"),
    [
        ({"view_password": "look"}, "FIRSTFAULT_VIEW_PASSWORD"),
        ({"proxy_user_header": HEADER, "default_role": "boss"}, "FIRSTFAULT_DEFAULT_ROLE"),
        ({"proxy_user_header": HEADER, "trusted_proxies": "10.0.0.300"}, "FIRSTFAULT_TRUSTED_PROXIES"),
    ],
)  # fmt: skip
def test_settings_that_contradict_are_named(values: dict[str, object], name: str) -> None:
    with pytest.raises(UsageError, match=name):
        check_binding(make(**values), "127.0.0.1")


@each_row("peer", ["8.8.8.8", "10.0.0.4", "::ffff:10.0.0.4", "2001:db8::1", "", "x"])
def test_without_a_login_only_this_machine_is_met(peer: str) -> None:
    with pytest.raises(AccessDenied, match="its own machine only"):
        Door(make()).meet([], peer)
    for own in (None, "127.0.0.1", "::1", "::ffff:127.0.0.1", "127.9.9.9"):
        assert Door(make()).meet([], own) == Visitor("", Role.APPROVE)


@each_row("twice", [HEADER, ROLES])
def test_a_header_that_comes_twice_is_refused(twice: str) -> None:
    rows = [(HEADER, "ada"), (ROLES, "view"), (twice.lower(), "approve")]
    with pytest.raises(AccessDenied, match="replace it, not append"):
        Door(proxy()).meet(rows, "127.0.0.1")


def test_one_who_guesses_locks_nobody_else_out() -> None:
    now = [0.0]
    door = Door(make(password="secret"), clock=lambda: now[0])
    for _ in range(40):
        now[0] += 1
        with pytest.raises(AccessDenied):
            door.sign_in("guess", "10.0.0.66")
    with pytest.raises(AccessDenied, match="too many"):
        door.sign_in("secret", "10.0.0.66")
    assert door.sign_in("secret", "10.0.0.7").role is Role.APPROVE
    assert door.sign_in("secret").role is Role.APPROVE


def test_wrong_guesses_are_forgiven_with_time() -> None:
    now = [0.0]
    door = Door(make(password="secret"), clock=lambda: now[0])
    for _ in range(4):
        with pytest.raises(AccessDenied):
            door.sign_in("guess")
    now[0] += 240
    for _ in range(4):
        with pytest.raises(AccessDenied, match="wrong"):
            door.sign_in("guess")
    assert door.sign_in("secret").role is Role.APPROVE


def test_many_addresses_that_guess_are_braked_together() -> None:
    now = [0.0]
    door = Door(make(password="secret"), clock=lambda: now[0])
    for number in range(MOST_GUESSES):
        with pytest.raises(AccessDenied, match="wrong"):
            door.sign_in("guess", f"10.0.{number // 250}.{number % 250}")
    with pytest.raises(AccessDenied, match="everywhere"):
        door.sign_in("guess", "10.9.9.9")
    now[0] += 61
    assert door.sign_in("secret", "10.9.9.9").role is Role.APPROVE


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(make(password="hunter2", model_key="hunter2"))
