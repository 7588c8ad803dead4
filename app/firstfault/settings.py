"""How is this installation set up? One object, read once from FIRSTFAULT_* variables.

Folders stay in `paths`, since the quick commands must not pay for loading this module; `data`,
`cache` and `knowledge` are read from the same variables there.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from firstfault.paths import data_folder


class WorkerMode(StrEnum):
    """Who executes runs: child processes of the page, others (`firstfault worker`), or its own threads."""

    THREAD = "thread"
    PROCESS = "process"
    EXTERNAL = "external"


class LogFormat(StrEnum):
    """How log lines look on standard error."""

    TEXT = "text"
    JSON = "json"


class Settings(BaseSettings):
    """Settings of one process; every field is the variable FIRSTFAULT_<FIELD>."""

    model_config = SettingsConfigDict(
        env_prefix="FIRSTFAULT_",
        frozen=True,
        protected_namespaces=(),
        extra="ignore",
        populate_by_name=True,
    )

    data: Path = Field(
        default_factory=data_folder, description="Folder for incidents and evidence."
    )
    database_url: str = Field(
        "", description="SQLAlchemy URL; empty means SQLite in the data folder."
    )

    worker: WorkerMode = Field(
        WorkerMode.PROCESS, description="process, external or thread (which has no limits)."
    )
    worker_threads: int = Field(2, ge=1, le=64, description="Runs executed at the same time.")
    lease_seconds: float = Field(15.0, gt=0, description="A silent worker loses its run after it.")
    max_attempts: int = Field(2, ge=1, description="A run that kills this many workers has failed.")
    run_cpu_s: float = Field(60.0, gt=0, description="CPU seconds of one run's analysis.")
    run_wall_s: float = Field(300.0, gt=0, description="Seconds one run's analysis may take.")
    run_memory_mib: int = Field(
        4096, ge=1024, description="Address space of a worker process of the page."
    )

    copy_below_mib: float = Field(
        64.0,
        ge=0,
        description="Files named by path are copied below this size, else read in place.",
    )
    allow_paths: bool = Field(
        True,
        description="Visitors of the page may name files of this machine: any where nobody signs in "
        "(local mode, loopback), else those below path_roots.",
    )
    path_roots: str = Field(
        "", description="Folders below which visitors may name files, separated by ':'."
    )
    mcp_roots: str = Field(
        "", description="Folders below which `firstfault mcp` reads, separated by ':'; empty: all."
    )
    max_input_mib: int = Field(1024, ge=1, description="Largest single pasted text or upload.")
    max_inputs: int = Field(2000, ge=1, description="Most files of one incident.")

    retention_days: int = Field(
        0, ge=0, description="Delete incidents idle this long; 0 keeps all."
    )

    address: str = Field("127.0.0.1", description="Address the page binds to.")
    port: int = Field(8501, ge=1, le=65535, description="Port the page binds to.")
    health_port: int = Field(
        0, ge=0, le=65535, description="Port of /healthz of a worker; 0: none."
    )
    password: SecretStr = Field(
        SecretStr(""), description="One password for everybody; role approve."
    )
    view_password: SecretStr = Field(SecretStr(""), description="Password that only lets one read.")
    proxy_user_header: str = Field(
        "", description="Header in which a trusted proxy names the signed-in user."
    )
    proxy_role_header: str = Field("", description="Header in which that proxy names the role.")
    trusted_proxies: str = Field(
        "127.0.0.1,::1", description="Addresses whose headers are believed, comma separated."
    )
    default_role: str = Field("view", description="Role of a proxy's user without a role header.")

    log_format: LogFormat = Field(LogFormat.TEXT, description="text or json.")

    model_url: str = Field(
        "",
        validation_alias=AliasChoices("FIRSTFAULT_MODEL_URL", "OPENAI_BASE_URL"),
        description="OpenAI-compatible endpoint; empty means the public one of the key.",
    )
    model_name: str = Field(
        "",
        validation_alias=AliasChoices("FIRSTFAULT_MODEL", "FIRSTFAULT_MODEL_NAME", "OPENAI_MODEL"),
        description="Model to ask; empty means no model, whatever else is set.",
    )
    model_key: SecretStr = Field(
        SecretStr(""),
        validation_alias=AliasChoices("FIRSTFAULT_MODEL_KEY", "OPENAI_API_KEY"),
        description="Key for it.",
    )
    model_structure: Literal["tool", "schema"] = Field(
        "tool", description="How it answers in the schema: tool (a tool call) or schema (grammar)."
    )
    model_hide: str = Field(
        "hosts,users,ips,paths",
        description="What is replaced by placeholders before it is sent; none: secrets only.",
    )
    model_consent: Literal["ask", "given"] = Field(
        "ask", description="ask: a person sees what would be sent first (never for loopback)."
    )
    model_context: int = Field(32_768, ge=2_048, description="Tokens the model's context holds.")
    model_answer: int = Field(
        0, ge=0, description="Tokens one answer may have; 0: 2048, for one that reasons 16384."
    )
    model_reasoning: Literal["auto", "yes", "no"] = Field(
        "auto",
        description="It thinks before it answers, so no temperature is sent; auto: by its name.",
    )
    model_tokens: int = Field(150_000, ge=2_000, description="Tokens one turn may cost.")
    model_steps: int = Field(10, ge=1, le=50, description="Calls of the model in one turn.")
    model_silence_s: float = Field(60.0, gt=0, description="Longest silence of the endpoint.")
    model_turn_s: float = Field(240.0, gt=0, description="Longest turn with the model.")
    model_wait_s: float = Field(
        180.0,
        gt=0,
        description="Longest that `diagnose --json` waits for the model; then it prints without it.",
    )
    model_probe: bool = Field(
        False,
        description="The conversation, or its model, may offer to run `probe` here; a person approves each.",
    )
    model_price_in: float = Field(0.0, ge=0, description="Price of a million tokens sent.")
    model_price_out: float = Field(0.0, ge=0, description="Price of a million tokens received.")

    @cached_property
    def database(self) -> str:
        """URL of the database, the default filled in."""
        if self.database_url:
            return _with_driver(self.database_url)
        return f"sqlite:///{self.data / 'incidents.sqlite'}"

    @cached_property
    def spool(self) -> Path:
        """Content-addressed evidence."""
        return self.data / "evidence"


def _with_driver(url: str) -> str:
    """`postgres://` and `postgresql://` mean psycopg 3, the driver that is installed."""
    for prefix in ("postgres://", "postgresql://"):
        if url.startswith(prefix):
            return "postgresql+psycopg://" + url.removeprefix(prefix)
    return url
