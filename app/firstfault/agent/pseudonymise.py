"""What leaves the machine under another name? Stable placeholders for hosts, users, addresses, paths.

Secrets are redacted always, before anything else. The same name gets the same placeholder for the whole
incident, and `restore` puts the names back into what the model answers.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping

from firstfault.agent.endpoint import Hidden
from firstfault_tools.expressions import expression
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.log.secrets import redact

_IPV4 = r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\.\d)(?!\w)"
_IPV6 = r"(?<![\w:])(?:[0-9a-fA-F]{1,4}:){3,7}(?::?[0-9a-fA-F]{1,4}){1,5}(?![\w:])|(?<![\w:])fe80::[0-9a-fA-F:]+"
_ADDRESS = expression(f"{_IPV4}|{_IPV6}")
_MAIL = expression(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+\b")
_HOST_SAID = expression(
    r"(?i)\b(?:host(?:name)?|node(?:name|list)?|machine|server|slurmd_nodename|batchhost)\b[\"']?\s*(?:[:=]\s*|\s)[\"'(]?(?P<name>[A-Za-z][A-Za-z0-9-]*\d[A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)*|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+){1,5})"
)
_FULL_NAME = expression(
    r"(?i)(?<![\w./@-])[a-z0-9][a-z0-9-]{0,62}(?:\.[a-z0-9-]{1,63}){0,5}\.(?:com|net|org|edu|gov|io|internal|local|lan|corp|cluster|intra|cloud|dev|ai|de|uk|fr|cn|jp|ch|eu)\b(?!\w)"
)
_NODE = expression(
    r"(?i)(?<![\w./<-])(?:ip-\d+-\d+-\d+-\d+|[a-z]{2,16}(?:-[a-z0-9]{1,16}){1,6}-?\d{1,6}|(?:node|host|worker|compute|dgx|hgx|gpu-?node|gpuserver|srv|rack)[-_]?\d{1,6}(?:-\d+)*)(?![\w-])"
)
_USER_SAID = expression(
    r"(?i)\b(?:user(?:name)?|owner|logname|uid)\b[\"']?\s*[:=]\s*[\"']?(?P<name>[A-Za-z_][\w.-]{1,31})"
)
_AT_HOST = expression(r"(?<![\w.+-])(?P<name>[a-z_][\w-]{1,31})@(?=[A-Za-z][\w.-]*(?:[:\s$]|$))")
_HOME = expression(
    r"/(?:home|Users|users|export/home|data/home|fsx/home|gpfs/home)/(?P<name>[A-Za-z_][\w.-]{0,31})(?=/|\b)"
)
_PATH = expression(r"(?<![\w.:/<>-])(?:~|\.{0,2})?/(?:[\w.@+=,-]+/)+(?P<last>[\w.@+=,-]*)")
_PUBLIC_PATH = expression(
    r"^/(?:dev|proc|sys|usr|opt/conda|lib|lib64|bin|etc|sbin)(?:/|$)|site-packages|dist-packages|/python3"
)
_NO_HOSTS = expression(
    r"(?i)^(?:localhost|(?:rank|gpu|step|epoch|stage|layer|world|line|iter|worker|python|cuda|torch|nccl|ubuntu|debian|linux|mlx|mlx5|eth|ib|fp|bf|int|uint|float|h|a|v|rtx|gtx|cp|sm|utf|sha|md|ipv|tcp|http|fsdp|zero|llama|gpt|qwen|opt|bert|mistral|mixtral)[-_]?\d[\w.-]*|.*\.(?:py|so|log|txt|json|yaml|yml|cpp|cu|cc|h|cuh|md|pt|bin|out|err)|torch\..*|huggingface\.co|(?:.*\.)?pytorch\.org|github\.com|(?:.*\.)?nvidia\.com|pypi\.org|.*-of-\d+|compute_\d{2,3}\w?|rdmap\w*(?:-rdm)?|(?:mlx5|bnxt_re|hfi1|irdma)_?\d*)$"
)
_LIKE_A_HOST = expression(r"\d|[a-zA-Z]\.[a-zA-Z]")
_NO_USERS = frozenset(
    {"root", "none", "null", "true", "false", "user", "nobody", "git", "admin", "name"}
)
_PLACEHOLDER = expression(r"<(host|user|ip|mail|dir)-(\d{1,4})>")


class Veil:
    """Names and their placeholders of one incident; safe to use from several threads."""

    def __init__(self, hidden: frozenset[Hidden], known_hosts: Iterable[str] = ()) -> None:
        self._hidden = hidden
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._back: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._pattern: re.Pattern[str] | None = None
        if Hidden.HOSTS in hidden:
            for host in known_hosts:
                if len(host) > 2 and not _NO_HOSTS.match(host):
                    self._placeholder("host", host, "")

    @property
    def names(self) -> Mapping[str, str]:
        """Name -> placeholder, as far as met."""
        return dict(self._names)

    def adopt(self, names: Mapping[str, str]) -> None:
        """Take over what an earlier process had given out."""
        with self._lock:
            for name, mark in names.items():
                match = _PLACEHOLDER.fullmatch(mark)
                if match is None or name in self._names:
                    continue
                self._names[name], self._back[mark] = mark, name
                self._counts[match[1]] = max(self._counts.get(match[1], 0), int(match[2]))
            self._pattern = None

    def hide(self, text: str) -> str:
        """`text` without secrets and, by setting, without names."""
        text = redact(text)
        with self._lock:
            self._learn(text)
            if Hidden.PATHS in self._hidden:
                text = _PATH.sub(lambda m: self._path(m, text), text)
            if Hidden.IPS in self._hidden:
                text = _ADDRESS.sub(lambda m: self._address(m[0], text), text)
            if Hidden.USERS in self._hidden:
                text = _MAIL.sub(lambda m: self._placeholder("mail", m[0], text), text)
            pattern = self._known()
            return pattern.sub(lambda m: self._names[m[0]], text) if pattern is not None else text

    def cover(self, text: str) -> str:
        """`text` with the names that are known already replaced; nothing is learned from it."""
        text = redact(text)
        with self._lock:
            pattern = self._known()
            return pattern.sub(lambda m: self._names[m[0]], text) if pattern is not None else text

    def restore(self, text: str) -> str:
        """`text` with the names put back; placeholders nobody gave out stay."""
        return _PLACEHOLDER.sub(lambda m: self._back.get(m[0], m[0]), text)

    def _learn(self, text: str) -> None:
        if Hidden.HOSTS in self._hidden:
            for line in text.split("\n"):
                host = read_prefix(line)[0].host
                # `mount | grep` looks like a speaker too; a machine's name has a digit or a dot in it
                if host and _LIKE_A_HOST.search(host):
                    self._host(host, text)
            for pattern in (_HOST_SAID, _FULL_NAME, _NODE):
                for match in pattern.finditer(text):
                    self._host(match["name"] if "name" in pattern.groupindex else match[0], text)
        if Hidden.USERS in self._hidden:
            for pattern in (_USER_SAID, _AT_HOST, _HOME):
                for match in pattern.finditer(text):
                    if match["name"].lower() not in _NO_USERS and not match["name"].startswith(
                        "redacted"
                    ):
                        self._placeholder("user", match["name"], text)

    def _host(self, name: str, text: str) -> None:
        name = name.rstrip(".-")
        if (
            len(name) > 2
            and not _NO_HOSTS.match(name)
            and not _ADDRESS.fullmatch(name)
            and not name.isdecimal()
        ):
            self._placeholder("host", name, text)

    def _address(self, found: str, text: str) -> str:
        if (
            found.startswith("127.")
            or found == "0.0.0.0"
            or any(int(p) > 255 for p in found.split(".") if p.isdecimal() and "." in found)
        ):
            return found
        return self._placeholder("ip", found, text)

    def _path(self, match: re.Match[str], text: str) -> str:
        whole = match[0]
        if _PUBLIC_PATH.search(whole):
            return whole
        last = match["last"]
        folder = whole[: len(whole) - len(last)].rstrip("/")
        return f"{self._placeholder('dir', folder, text)}/{last}" if folder else whole

    def _placeholder(self, kind: str, name: str, text: str) -> str:
        if name in self._names:
            return self._names[name]
        number = self._counts.get(kind, 0) + 1
        while f"<{kind}-{number}>" in text:
            number += 1
        self._counts[kind] = number
        mark = f"<{kind}-{number}>"
        self._names[name], self._back[mark] = mark, name
        self._pattern = None
        return mark

    def _known(self) -> re.Pattern[str] | None:
        if self._pattern is None and self._names:
            names = sorted(self._names, key=len, reverse=True)
            self._pattern = re.compile(
                r"(?<![\w<])(?:" + "|".join(map(re.escape, names)) + r")(?!\w)"
            )
        return self._pattern
