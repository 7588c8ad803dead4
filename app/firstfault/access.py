"""Who may do what on the page? Off on this machine; a password or a proxy's header elsewhere.

view: read. investigate: start, ask, add, archive. approve: let probes run, delete for good.
Without a password or a proxy the page binds to loopback only.
"""

from __future__ import annotations

import hmac
import ipaddress
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import field
from enum import StrEnum

from firstfault.errors import FirstfaultError, UsageError
from firstfault.settings import Settings
from firstfault_tools.dataclass import dataclass

FREE_GUESSES, PAUSE_SECONDS, LONGEST_PAUSE = 5, 2.0, 300.0
FORGIVEN_EVERY = 60.0
"""Seconds after which one wrong guess of an address is forgotten."""

MOST_GUESSES, BRAKE_SECONDS = 600, 60.0
"""Guesses of all addresses together within so many seconds: far above what people mistype."""

MOST_ADDRESSES = 10_000
_LOOPBACK_NAMES = ("localhost", "ip6-localhost")
FOREIGN_PEER = (
    "this page serves its own machine only, since nobody signs in here. Reach it through an SSH tunnel, "
    "or set FIRSTFAULT_PASSWORD, or FIRSTFAULT_PROXY_USER_HEADER behind a proxy that signs people in."
)


class Role(StrEnum):
    """What a visitor may do; each includes the ones before it."""

    VIEW = "view"
    INVESTIGATE = "investigate"
    APPROVE = "approve"

    def may(self, needed: Role) -> bool:
        """This role includes `needed`."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


class AccessDenied(FirstfaultError):
    """The visitor may not do this, or is not who may."""

    exit_code = 2


class Mode(StrEnum):
    """How visitors are known."""

    LOCAL = "local"
    PASSWORD = "password"
    PROXY = "proxy"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who is at the page. name is empty where nobody signs in by name."""

    name: str
    role: Role

    def require(self, needed: Role) -> None:
        """Raise AccessDenied unless the role suffices."""
        if not self.role.may(needed):
            raise AccessDenied(f"this needs the role {needed.value}; yours is {self.role.value}")


def choose_mode(settings: Settings) -> Mode:
    """How this installation knows its visitors. Raises UsageError for settings that contradict."""
    if settings.proxy_user_header:
        _role(settings.default_role, "FIRSTFAULT_DEFAULT_ROLE")
        _trusted(settings)
        return Mode.PROXY
    if settings.password.get_secret_value():
        return Mode.PASSWORD
    if settings.view_password.get_secret_value():
        raise UsageError(
            "FIRSTFAULT_VIEW_PASSWORD is set without FIRSTFAULT_PASSWORD: nobody could investigate"
        )
    return Mode.LOCAL


def is_loopback(address: str) -> bool:
    """The address is reached from this machine only."""
    name = address.strip().strip("[]").lower()
    if name in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_this_machine(peer: str | None) -> bool:
    """The address at the other end of a connection is loopback; None is this machine itself."""
    if peer is None:
        return True
    try:
        address = ipaddress.ip_address(peer.split("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def check_binding(settings: Settings, address: str) -> None:
    """Refuse (UsageError) to serve beyond this machine without a way to know visitors."""
    if choose_mode(settings) is Mode.LOCAL and not is_loopback(address):
        raise UsageError(
            f"refusing to serve on {address} without a login: anybody who reaches it could read the "
            "logs. Set FIRSTFAULT_PASSWORD, or FIRSTFAULT_PROXY_USER_HEADER behind a proxy that "
            "signs people in, or bind to 127.0.0.1 and use an SSH tunnel."
        )


@dataclass(slots=True)
class _Guesses:
    """Wrong guesses of one address: how many still count, since when, and until when it waits."""

    wrong: float = 0.0
    at: float = 0.0
    closed_until: float = 0.0

    def decay(self, now: float) -> None:
        """Forget one guess a minute."""
        self.wrong = max(0.0, self.wrong - (now - self.at) / FORGIVEN_EVERY)
        self.at = now


@dataclass
class Door:
    """Lets visitors in. Keep one per process: it remembers wrong guesses, by address."""

    settings: Settings
    clock: Callable[[], float] = time.monotonic
    _guesses: dict[str, _Guesses] = field(default_factory=dict)
    _recent: deque[float] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def mode(self) -> Mode:
        return choose_mode(self.settings)

    def meet(self, headers: Iterable[tuple[str, str]], peer: str | None) -> Visitor | None:
        """The visitor of a request, or None when a password is asked for.

        headers: every header as it came, so that one sent twice is seen. peer: address at the other
        end of the connection; None where it is this machine. Raises AccessDenied for a peer that is
        not this machine where nobody signs in, and when the proxy's header is missing, comes twice
        or comes from somebody else.
        """
        if self.mode is Mode.LOCAL:
            if not is_this_machine(peer):
                raise AccessDenied(FOREIGN_PEER)
            return Visitor("", Role.APPROVE)
        if self.mode is Mode.PASSWORD:
            return None
        if not _is_trusted(peer, self.settings):
            raise AccessDenied(
                f"requests have to come through the proxy; {peer or 'this machine'} is not in "
                "FIRSTFAULT_TRUSTED_PROXIES"
            )
        rows = [(name.lower(), value.strip()) for name, value in headers]
        name = _only(rows, self.settings.proxy_user_header)
        if not name:
            raise AccessDenied(
                f"the proxy did not say who you are (header {self.settings.proxy_user_header})"
            )
        given = ""
        if self.settings.proxy_role_header:
            given = _only(rows, self.settings.proxy_role_header).lower()
        # an unknown role is no role: the smallest one, never the default
        if given and given not in set(Role):
            return Visitor(name[:200], Role.VIEW)
        return Visitor(name[:200], Role(given or self.settings.default_role))

    def sign_in(self, password: str, peer: str | None = None) -> Visitor:
        """The visitor with this password. Raises AccessDenied; guessing is slowed down by address."""
        with self._lock:
            now = self.clock()
            mine = self._guesses_of(peer or "this machine", now)
            if now < mine.closed_until:
                left = mine.closed_until - now
                raise AccessDenied(f"too many wrong passwords; try again in {left:.0f} s")
            while self._recent and self._recent[0] < now - BRAKE_SECONDS:
                self._recent.popleft()
            if len(self._recent) >= MOST_GUESSES:
                raise AccessDenied(
                    "too many wrong passwords from everywhere; try again in a minute"
                )
            role = self._role_of(password)
            if role is None:
                self._recent.append(now)
                mine.wrong += 1
                if mine.wrong >= FREE_GUESSES:
                    pause = PAUSE_SECONDS * 2 ** (mine.wrong - FREE_GUESSES)
                    mine.closed_until = now + min(pause, LONGEST_PAUSE)
                raise AccessDenied("wrong password")
            del self._guesses[peer or "this machine"]
            return Visitor("", role)

    def _guesses_of(self, address: str, now: float) -> _Guesses:
        if len(self._guesses) >= MOST_ADDRESSES and address not in self._guesses:
            oldest = min(self._guesses, key=lambda a: self._guesses[a].at)
            del self._guesses[oldest]
        mine = self._guesses.setdefault(address, _Guesses(at=now))
        mine.decay(now)
        return mine

    def _role_of(self, password: str) -> Role | None:
        given = password.encode("utf-8", "replace")
        found: Role | None = None
        for secret, role in (
            (self.settings.view_password, Role.VIEW),
            (self.settings.password, Role.APPROVE),
        ):
            wanted = secret.get_secret_value().encode()
            # both are always compared, so that the time taken tells nothing
            if hmac.compare_digest(given, wanted) and wanted:
                found = role
        return found


def _only(rows: list[tuple[str, str]], header: str) -> str:
    """Value of a header; '' where it is missing. Twice is an attack or a proxy that appends."""
    values = [value for name, value in rows if name == header.lower()]
    if len(values) > 1:
        raise AccessDenied(
            f"the header {header} came {len(values)} times; the proxy has to replace it, not append"
        )
    return values[0] if values else ""


def _role(text: str, variable: str) -> Role:
    try:
        return Role(text.strip().lower())
    except ValueError:
        names = ", ".join(r.value for r in Role)
        raise UsageError(f"{variable}={text}: use one of {names}") from None


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _trusted(settings: Settings) -> tuple[Network, ...]:
    try:
        return tuple(
            ipaddress.ip_network(part.strip(), strict=False)
            for part in settings.trusted_proxies.split(",")
            if part.strip()
        )
    except ValueError as error:
        raise UsageError(f"FIRSTFAULT_TRUSTED_PROXIES: {error}") from error


def _is_trusted(peer: str | None, settings: Settings) -> bool:
    try:
        address = ipaddress.ip_address(peer if peer is not None else "127.0.0.1")
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in _trusted(settings))
