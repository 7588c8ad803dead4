"""How is one object of a store opened? s3:// by s3fs, gs:// by gcsfs, http(s):// by aiohttp.

The version that was listed is the version that is read: its tag goes along with every request, so
that an object overwritten meanwhile is an error and never a mixture. What the libraries raise leaves
here as OSError in plain words, without the secrets of an address. fsspec is imported only here.
"""

from __future__ import annotations

import io
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from firstfault.intake.collect import show_name
from firstfault.intake.ranges import BLOCK_BYTES, BlockStream, Fetch
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

READ_BYTES = 256 * 1024
SCHEMES = ("s3", "gs", "gcs", "http", "https", "memory")
TRIES = 3
"""How often an HTTP range is asked for; s3fs and gcsfs repeat by themselves."""

SILENCE_SECONDS = 60
_REMOTE = expression(rf"(?:{'|'.join(SCHEMES)})://")
_EXTRA = {
    "s3": ("s3fs", "s3"), "gs": ("gcsfs", "gcs"), "gcs": ("gcsfs", "gcs"), "http": ("aiohttp", "http"),
    "https": ("aiohttp", "http"),
}  # fmt: skip
_NO_CREDENTIALS = (
    "NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "TokenRetrievalError",
    "DefaultCredentialsError", "UnauthorizedSSOTokenError", "SSOTokenLoadError",
)  # fmt: skip
_QUERY = expression(r"(://[^\s?'\"<>]{1,2000})\?[^\s'\"<>)]+")
_CREDENTIALS = {
    "s3": "set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; for a public bucket FSSPEC_S3='{\"anon\": true}'",
    "gs": "run `gcloud auth application-default login` or set GOOGLE_APPLICATION_CREDENTIALS; for a public bucket FSSPEC_GS='{\"token\": \"anon\"}'",
    "http": "a signed address may have expired; ask for a new one",
}  # fmt: skip


class ObjectMissing(OSError):
    """There is no such object, folder or bucket."""


class ObjectChanged(OSError):
    """The object is no longer the one that was listed."""


class PackageMissing(OSError):
    """The library that opens this kind of address is not installed."""


def is_remote(source: str) -> bool:
    """An address fsspec opens, not a local path."""
    return _REMOTE.match(source) is not None


def scheme_of(url: str) -> str:
    return url.split("://", 1)[0]


def show_address(url: str) -> str:
    """An address as it may be shown: without the query, which signs it, user and password."""
    if scheme_of(url) not in ("http", "https"):
        return show_name(url)
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return show_name(f"{parts.scheme}://{host}{parts.path}{'?...' if parts.query else ''}")


def name_object(url: str) -> str:
    """Name of an object as a log: bucket or host, and path."""
    if scheme_of(url) not in ("http", "https"):
        return url.split("://", 1)[1].partition("?versionId=")[0]
    parts = urlsplit(url)
    return f"{parts.netloc.rpartition('@')[2]}{unquote(parts.path)}"


@dataclass(frozen=True, slots=True)
class _Size:
    st_size: int


@dataclass(frozen=True, slots=True)
class RemotePath:
    """An object that is read like a `Path`: opened for reading, sought in, asked for its size.

    size: bytes, -1 if unknown. tag: ETag, generation or date of the version listed, "" if unknown.
    packed: stored with Content-Encoding gzip. head: a copy of its first bytes on this machine.
    """

    url: str = field(repr=False)
    size: int
    tag: str = ""
    packed: bool = False
    head: Path | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return show_address(self.url)

    @property
    def name(self) -> str:
        return name_object(self.url).rstrip("/").rsplit("/", 1)[-1]

    def stat(self) -> _Size:
        return _Size(self.size)

    def open(self, mode: str = "rb", eager: bool = False) -> IO[bytes]:
        """A stream that keeps a few blocks. Its first bytes come from `head` where that exists."""
        return io.BufferedReader(
            BlockStream(self.size, lambda: _open_fetch(self), self._read_head(), eager), READ_BYTES
        )

    def read_bytes(self) -> bytes:
        with self.open(eager=True) as stream:
            return stream.read()

    def _read_head(self) -> bytes:
        if self.head is None:
            return b""
        try:
            return self.head.read_bytes()
        except OSError:  # on another machine of a cluster
            return b""


def describe_object(url: str, info: Mapping[str, Any]) -> RemotePath:
    """An object from what its store says of it."""
    size = info.get("size")
    packed = info.get("contentEncoding") == "gzip"
    return RemotePath(url, size if isinstance(size, int) else -1, _tag_of(info), packed)


def _tag_of(info: Mapping[str, Any]) -> str:
    return str(info.get("generation") or info.get("ETag") or info.get("Last-Modified") or "")


def open_whole(remote: RemotePath) -> IO[bytes]:
    """The object from its beginning to its end in one go where ranges cannot be trusted."""
    if scheme_of(remote.url) not in ("http", "https"):
        return remote.open(eager=True)
    filesystem, path = open_store(remote.url)
    with in_plain_words(remote.url):
        stream: IO[bytes] = filesystem.open(path, "rb", block_size=0)
        return stream


_stores: dict[tuple[int, str, bool], Any] = {}
_opening = threading.Lock()


def open_store(url: str) -> tuple[Any, str]:
    """fsspec's file system of an address, one a process, and the path in it. Raises OSError."""
    scheme = scheme_of(url)
    with _opening, in_plain_words(url):
        key = (os.getpid(), scheme, "versionId=" in url)
        if key not in _stores:
            _stores[key] = _make_store(scheme, url)
        return _stores[key], str(_stores[key]._strip_protocol(url))


_ZONAL = "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"
"""Where this is on, gcsfs asks a second service for the kind of each bucket before every read."""


def _make_store(scheme: str, url: str, **options: Any) -> Any:
    if scheme in ("gs", "gcs"):
        library = logging.getLogger("gcsfs")
        if library.level == logging.NOTSET and not library.isEnabledFor(logging.INFO):
            library.setLevel(logging.CRITICAL)  # what it logs as an error is raised, too
        os.environ.setdefault(_ZONAL, "false")
    try:
        import fsspec

        if scheme in ("http", "https") and not fsspec.config.conf.get(scheme):
            import aiohttp

            # the default ends a read after five minutes, however well it goes
            silence = aiohttp.ClientTimeout(
                total=None, sock_connect=SILENCE_SECONDS, sock_read=SILENCE_SECONDS
            )
            options = {"client_kwargs": {"timeout": silence}}
        if "versionId=" in url and scheme == "s3":
            options = {"version_aware": True}
        if scheme in ("gs", "gcs") and os.environ.get(_ZONAL) == "false":
            from gcsfs.core import GCSFileSystem

            return GCSFileSystem(**options)
        return fsspec.filesystem(scheme, **options)
    except ImportError as error:
        package, extra = _EXTRA.get(scheme, ("fsspec", "cluster"))
        raise PackageMissing(
            f"reading {scheme}:// needs the package {package}: pip install 'firstfault[{extra}]'"
        ) from error


def _open_fetch(remote: RemotePath) -> Fetch:
    """A function that fetches ranges of the version that was listed. Raises OSError."""
    filesystem, path = open_store(remote.url)
    scheme = scheme_of(remote.url)
    with in_plain_words(remote.url):
        if scheme in ("gs", "gcs"):
            fetch = _fetch_generation(filesystem, path, remote)
        elif scheme in ("http", "https"):
            fetch = _repeat(_fetch_http(filesystem, path, remote))
        elif scheme == "s3":
            # s3fs sends the ETag it knows as If-Match
            file = filesystem.open(path, "rb", cache_type="none", block_size=BLOCK_BYTES)
            _check_same(remote, file.details)
            fetch = file._fetch_range
        else:
            _check_same(remote, filesystem.info(path))
            return lambda start, end: bytes(filesystem.cat_file(path, start=start, end=end))

    def fetch_plainly(start: int, end: int) -> bytes:
        try:
            with in_plain_words(remote.url):
                return fetch(start, end)
        except ObjectMissing:  # it was there when it was listed
            raise ObjectChanged(_CHANGED) from None

    return fetch_plainly


def _fetch_generation(filesystem: Any, path: str, remote: RemotePath) -> Fetch:
    if remote.packed:
        # the stored bytes: those that are unpacked on the way have other ranges
        with _opening:
            key = (os.getpid(), "gs packed", False)
            if key not in _stores:
                _stores[key] = _make_store("gs", "", session_kwargs={"auto_decompress": False})
            filesystem = _stores[key]
    pinned = {"generation": remote.tag} if remote.tag else {}
    return lambda start, end: filesystem.cat_file(path, start=start, end=end, **pinned)


def _fetch_http(filesystem: Any, path: str, remote: RemotePath) -> Fetch:
    info = filesystem.info(path)
    _check_same(remote, info)
    if info.get("partial") is False:
        raise OSError("the server gives no ranges")
    headers = {}
    if str(info.get("ETag", "")).startswith('"'):
        headers["If-Match"] = info["ETag"]
    elif "Last-Modified" in info:
        headers["If-Unmodified-Since"] = info["Last-Modified"]
    file = filesystem.open(
        path, "rb", size=remote.size, block_size=BLOCK_BYTES, cache_type="none", headers=headers
    )
    fetch: Fetch = file._fetch_range
    return fetch


def _repeat(fetch: Fetch) -> Fetch:
    """Ask again where the server or the way to it failed."""
    import aiohttp

    def fetch_again(start: int, end: int) -> bytes:
        for attempt in range(1, TRIES + 1):
            try:
                data = fetch(start, end)
                if len(data) == end - start or attempt == TRIES:
                    return data
            except aiohttp.ClientResponseError as error:
                if error.status < 500 or attempt == TRIES:
                    raise
            except (aiohttp.ClientError, ConnectionError, TimeoutError):
                if attempt == TRIES:
                    raise
            time.sleep(0.25 * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    return fetch_again


def _check_same(remote: RemotePath, info: Mapping[str, Any]) -> None:
    now = describe_object(remote.url, info)
    if now.size != remote.size or (now.tag and remote.tag and now.tag != remote.tag):
        raise ObjectChanged(_CHANGED)


_CHANGED = "changed since it was listed; run again"


@contextmanager
def in_plain_words(url: str) -> Iterator[None]:
    """What a library raises becomes an OSError that says what to do and shows no secret."""
    try:
        yield
    except (ObjectMissing, ObjectChanged, PackageMissing):
        raise
    except _troubles(scheme_of(url)) as error:
        # the original may quote the signed address, so it is not chained
        raise _explain(url, error) from None


@cache
def _kinds(scheme: str) -> tuple[type[Exception], ...]:
    if scheme == "s3":
        from aiohttp import ClientError as HttpTrouble
        from botocore.exceptions import BotoCoreError, ClientError

        return (OSError, ValueError, BotoCoreError, ClientError, HttpTrouble)
    if scheme in ("gs", "gcs"):
        from aiohttp import ClientError as HttpTrouble
        from gcsfs.retry import ChecksumError, HttpError, NonRetryableError
        from google.auth.exceptions import GoogleAuthError

        return (
            OSError, ValueError, RuntimeError, HttpError, NonRetryableError, ChecksumError, HttpTrouble,
            GoogleAuthError,
        )  # fmt: skip
    if scheme in ("http", "https"):
        from aiohttp import ClientError as HttpTrouble

        return (OSError, ValueError, HttpTrouble)
    return (OSError, ValueError)


def _troubles(scheme: str) -> tuple[type[Exception], ...]:
    """What the library of a scheme raises; its own classes are known only where it is installed."""
    try:
        return _kinds(scheme)
    except ImportError:
        return (OSError, ValueError)


def _explain(url: str, error: Exception) -> OSError:
    scheme = {"gcs": "gs", "https": "http"}.get(scheme_of(url), scheme_of(url))
    kind = type(error).__name__
    cause: BaseException = error
    if scheme == "http" and isinstance(error, FileNotFoundError):
        # fsspec's word for whatever kept it from asking for the size
        cause = error.__cause__ or error
    status = str(getattr(cause, "status", None) or getattr(cause, "code", None) or "")
    words = getattr(cause, "strerror", None) or str(cause)
    said = show_name(_QUERY.sub(r"\1?...", str(words)))[:400] or kind
    if kind == "FileExpired" or status == "412" or isinstance(error, FileExistsError):
        return ObjectChanged(_CHANGED)
    if _is_denied(cause, kind, status, said):
        hint = _CREDENTIALS.get(scheme, "check the credentials")
        return PermissionError(f"access denied ({status if scheme == 'http' else said}); {hint}")
    if status in ("404", "410") or (isinstance(cause, FileNotFoundError) and not status):
        return ObjectMissing("no such object")
    if status and scheme == "http":
        return OSError(f"the server answered {status}")
    return OSError(said if isinstance(cause, OSError) else f"{kind}: {said}")


def _is_denied(cause: BaseException, kind: str, status: str, said: str) -> bool:
    """Refused for who asks, in the words of any of the stores."""
    if isinstance(cause, PermissionError) or kind in _NO_CREDENTIALS:
        return True
    return status in ("401", "403") or said.startswith("Forbidden")
