"""How is a model connected while Firstfault runs? Address, key and name in, settings out.

The key lives in the environment of the process, or in the system's keyring where the `keyring` package
is installed; it is never written to the database or the data folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pydantic import SecretStr

from firstfault.agent.endpoint import (
    KEY_VARIABLES,
    NAME_VARIABLES,
    PUBLIC_URL,
    URL_VARIABLES,
    Endpoint,
    read_endpoint,
)
from firstfault.errors import ModelUnavailable, UsageError

if TYPE_CHECKING:
    from firstfault.settings import Settings

RING = "firstfault"
"""Name under which keys stand in the keyring, one for each address."""


def with_model(settings: Settings, url: str, name: str, key: str = "") -> Settings:
    """`settings` with this model. Raises UsageError for an address that is none.

    Without a key the one already in use serves, for the address that it was given for and no other.
    """
    url = _tidy(url)
    secret = key.strip() or _known_key(settings, url)
    changed = settings.model_copy(
        update={"model_url": url, "model_name": name.strip(), "model_key": SecretStr(secret)}
    )
    read_endpoint(changed)
    return changed


def _tidy(url: str) -> str:
    """The address as keys are kept for it."""
    return url.strip().rstrip("/") or PUBLIC_URL


def _known_key(settings: Settings, url: str) -> str:
    if url == _tidy(settings.model_url):
        return settings.model_key.get_secret_value()
    return read_kept_key(url)


def put_in_environment(settings: Settings) -> None:
    """Let this process, and those it starts from now on, read these settings of the model."""
    values = (
        (NAME_VARIABLES[0], settings.model_name),
        (URL_VARIABLES[0], settings.model_url),
        (KEY_VARIABLES[0], settings.model_key.get_secret_value()),
    )
    for variable, value in values:
        os.environ[variable] = value


def list_models(settings: Settings, url: str, key: str = "") -> tuple[str, ...]:
    """Names of the models that the endpoint lists. Raises UsageError or ModelUnavailable with the reason."""
    from firstfault.agent.health import list_names

    endpoint = read_endpoint(with_model(settings, url, "any", key))
    assert endpoint is not None
    names, problem = list_names(endpoint)
    if problem:
        raise ModelUnavailable(problem)
    return names


def connected(settings: Settings) -> Endpoint:
    """The endpoint of these settings. Raises UsageError where none is set up."""
    endpoint = read_endpoint(settings)
    if endpoint is None:
        raise UsageError("no model is connected")
    return endpoint


def has_keyring() -> bool:
    """The `keyring` package is installed and found a place of this system that keeps keys."""
    return not _missing_keyring()


def _missing_keyring() -> str:
    """Why no key can be kept; empty where one can."""
    if find_spec("keyring") is None:
        return "the package keyring is not installed"
    import keyring

    # its own stand-ins for a backend that is absent or switched off keep nothing
    if keyring.get_keyring().priority <= 0:
        return "this system has no keyring that keeps keys; set FIRSTFAULT_MODEL_KEY instead"
    return ""


def keep_key(url: str, key: str) -> None:
    """Put a key into the system's keyring. Raises UsageError where that refuses it."""
    if missing := _missing_keyring():
        raise UsageError(missing)
    import keyring

    with _refusals("does not take the key"):
        keyring.set_password(RING, _tidy(url), key)


def read_kept_key(url: str) -> str:
    """The key kept for an address; empty where there is none, or no keyring."""
    if _missing_keyring():
        return ""
    import keyring

    try:
        with _refusals("does not open"):
            return keyring.get_password(RING, _tidy(url)) or ""
    except UsageError:
        return ""


def forget_key(url: str) -> None:
    """Take the key of an address out of the system's keyring. Raises UsageError where that refuses it."""
    if read_kept_key(url):
        import keyring

        with _refusals("does not forget the key"):
            keyring.delete_password(RING, _tidy(url))


@contextmanager
def _refusals(what: str) -> Iterator[None]:
    """A keyring is locked, its file not writable: said in a sentence."""
    from keyring.errors import KeyringError

    try:
        yield
    except (KeyringError, OSError) as error:
        raise UsageError(f"the keyring {what}: {error}") from error
