"""Who may do what on the page? Off on this machine; a password or a proxy's header elsewhere.

view: read. investigate: start, ask, add, archive. approve: let probes run, delete for good.
Without a password or a proxy the page binds to loopback only.
"""

from __future__ import annotations

import hmac
import ipaddress
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from firstfault.errors import FirstfaultError, UsageError
from firstfault.settings import Settings

FREE_GUESSES, PAUSE_SECONDS, LONGEST_PAUSE = 5, 2.0, 300.0
_LOOPBACK_NAMES = ("localhost", "ip6-localhost")


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


def check_binding(settings: Settings, address: str) -> None:
    """Refuse (UsageError) to serve beyond this machine without a way to know visitors."""
    if choose_mode(settings) is Mode.LOCAL and not is_loopback(address):
        raise UsageError(
            f"refusing to serve on {address} without a login: anybody who reaches it could read the "
            "logs. Set FIRSTFAULT_PASSWORD, or FIRSTFAULT_PROXY_USER_HEADER behind a proxy that "
            "signs people in, or bind to 127.0.0.1 and use an SSH tunnel."
        )


@dataclass
class Door:
    """Lets visitors in. Keep one per process: it remembers wrong guesses."""

    settings: Settings
    clock: Callable[[], float] = time.monotonic
    _wrong: int = 0
    _closed_until: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def mode(self) -> Mode:
        return choose_mode(self.settings)

    def meet(self, headers: Mapping[str, str], peer: str | None) -> Visitor | None:
        """The visitor of a request, or None when a password is asked for.

        peer: address the request came from; None where it is this machine. Raises AccessDenied when
        the proxy's header is missing or comes from somebody else.
        """
        if self.mode is Mode.LOCAL:
            return Visitor("", Role.APPROVE)
        if self.mode is Mode.PASSWORD:
            return None
        if not _is_trusted(peer, self.settings):
            raise AccessDenied(
                f"requests have to come through the proxy; {peer} is not in FIRSTFAULT_TRUSTED_PROXIES"
            )
        plain = {k.lower(): v for k, v in headers.items()}
        name = plain.get(self.settings.proxy_user_header.lower(), "").strip()
        if not name:
            raise AccessDenied(
                f"the proxy did not say who you are (header {self.settings.proxy_user_header})"
            )
        given = ""
        if self.settings.proxy_role_header:
            given = plain.get(self.settings.proxy_role_header.lower(), "").strip().lower()
        # an unknown role is no role: the smallest one, never the default
        if given and given not in set(Role):
            return Visitor(name[:200], Role.VIEW)
        return Visitor(name[:200], Role(given or self.settings.default_role))

    def sign_in(self, password: str) -> Visitor:
        """The visitor with this password. Raises AccessDenied; guessing is slowed down."""
        with self._lock:
            now = self.clock()
            if now < self._closed_until:
                left = self._closed_until - now
                raise AccessDenied(f"too many wrong passwords; try again in {left:.0f} s")
            role = self._role_of(password)
            if role is None:
                self._wrong += 1
                if self._wrong >= FREE_GUESSES:
                    pause = PAUSE_SECONDS * 2 ** (self._wrong - FREE_GUESSES)
                    self._closed_until = now + min(pause, LONGEST_PAUSE)
                raise AccessDenied("wrong password")
            self._wrong = 0
            return Visitor("", role)

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
