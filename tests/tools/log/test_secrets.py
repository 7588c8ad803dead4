"""Secrets never leave: each kind is replaced and counted, ordinary log text is not touched."""

from __future__ import annotations

from collections import Counter

import pytest
import re2
from firstfault_tools.log import secrets

SAMPLES = [
    ("aws_access_key", "using AKIA" + "ABCDEFGHIJKLMNOP now"),
    ("aws_secret_key", "AWS_SECRET_ACCESS_KEY=" + "abcd" * 10),
    ("huggingface_token", "login hf_" + "a1B2" * 8),
    ("openai_key", "OPENAI_API_KEY sk-" + "proj-" + "Z9y8" * 8),
    ("github_token", "https ghp_" + "A1b2" * 9),
    ("tracker_key", "WANDB_API_KEY=" + "0a1b2c3d" * 5),
    ("bearer", "Authorization: Bearer " + "abc.DEF_123" * 3),
    ("basic_auth", "authorization: Basic " + "dXNlcjpwYXNz" * 2),
    ("url_password", "git clone https://me:s3cr3t@example.org/x.git"),
    ("private_key", "-----BEGIN RSA PRIVATE KEY-----MIIEow"),
    ("password", "db password: hunter22x"),
    ("jwt", "token eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.abcDEF123"),
]


@pytest.mark.parametrize(("kind", "text"), SAMPLES)
def test_secret_is_replaced_and_counted(kind: str, text: str) -> None:
    counts: Counter[str] = Counter()
    redacted = secrets.redact(text, counts)
    assert f"<redacted:{kind}>" in redacted
    assert sum(counts.values()) == 1
    assert secrets.redact(redacted) == redacted


@pytest.mark.parametrize(("kind", "text"), [s for s in SAMPLES])
def test_the_scan_sees_every_line_that_would_be_redacted(kind: str, text: str) -> None:
    assert any(re2.search(p, text) for p in secrets.scan_patterns()), kind


@pytest.mark.parametrize(
    "text",
    [
        "consumed tokens: 658636800 | loss 2.7",
        "tokenizer: AutoTokenizer pad_token=<pad> eos_token='</s>'",
        "api_key: None",
        "https://docs.pytorch.org/docs/stable/notes/cuda.html",
        "WorkNCCL(SeqNum=29488, OpType=ALLREDUCE)",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert secrets.redact(text) == text
