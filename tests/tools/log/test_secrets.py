"""Secrets never leave: each kind is replaced and counted, ordinary log text is not touched."""

from __future__ import annotations

from collections import Counter

import re2
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.rows import each_row

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
    ("aws_secret_key", "run --aws-secret-key " + "abcd" * 10),
    ("tracker_key", "wandb login --relogin " + "0a1b2c3d" * 5),
    ("tracker_key", "export KEY wandb_v1_" + "Ab1" * 10),
    ("slack_token", "xapp-" + "1-A0123-456-abcdef"),
    ("service_token", "nvapi-" + "Ab12" * 8),
    ("service_token", "dapi" + "0a1b2c3d" * 4),
    ("service_token", "npm_" + "Ab1d" * 9),
    ("service_token", "pypi-" + "AgEI" * 15),
    ("service_token", "SG." + "a1" * 11 + "." + "Zz" * 21),
    ("service_token", "sk_live_" + "a1B2" * 5),
    ("service_token", "hvs." + "CAES" * 8),
    ("service_token", "dop_v1_" + "0a" * 32),
    ("service_token", "discord.com/api/webhooks/123456789/" + "aB-_" * 10),
    ("signed_url", "GET /k?X-Amz-Signature=" + "0a1b" * 16 + "&x=1"),
    ("cookie", "Set-Cookie: session=abcdef123456"),
    ("basic_auth", '{"auth": "dXNlcjpwYXNzd29yZA=="}'),
    ("basic_auth", "Authorization: token abcdef1234567"),
    ("url_password", "git clone https://" + "0a1b" * 8 + "@example.org/x.git"),
    ("url_password", "postgresql://user:12345678@db/x"),
    ("password", "mysql --password hunter22x"),
    ("password", "X-Api-Key: abcdef1234567"),
    ("password", "run --token abcdef1234567890tokn"),
    ("password", "token=abcdef1234567890tokn"),
    ("password", "{'hf_token': 'abcdef1234567890'}"),
    ("password", r'{"body": "{\"password\": \"hunter22x\"}"}'),
    ("password", "password: 12345678"),
    ("password", "MYSQL_PWD=hunter22x"),
    ("password", "{'user': 'a', 'pwd': 'hunter22x'}"),
    ("password", "sshpass -p 'hunter22x' ssh node1"),
    ("password", "docker login -u me -p hunter22x registry.example.org"),
    ("password", "curl -s -u me:hunter22x https://example.org"),
    ("password", "machine api.example.org login me password hunter22x"),
    ("url_password", "mysql://me:p@ss22x@host/db"),
    ("jwt", "token eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.abcDEF123"),
]


@each_row(("kind", "text"), SAMPLES)
def test_secret_is_replaced_and_counted(kind: str, text: str) -> None:
    counts: Counter[str] = Counter()
    redacted = secrets.redact(text, counts)
    assert f"<redacted:{kind}>" in redacted
    assert sum(counts.values()) == 1
    assert secrets.redact(redacted) == redacted


@each_row(("kind", "text"), SAMPLES)
def test_the_scan_sees_every_line_that_would_be_redacted(kind: str, text: str) -> None:
    assert any(re2.search(p, text) for p in secrets.scan_patterns()), kind


def test_a_quoted_password_goes_as_a_whole() -> None:
    assert secrets.redact('{"password": "two words, one secret", "user": "me"}') == (
        '{"password": "<redacted:password>", "user": "me"}'
    )


def test_a_key_line_behind_a_prefix_is_redacted_and_a_digest_is_not() -> None:
    body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
    assert secrets.redact(f"[rank0]: {body}") == "[rank0]: <redacted:private_key>"
    assert secrets.redact("GgAAAAtzc2gtZWQyNTUxOQAAACDq5sSk0==") == "<redacted:private_key>"
    for plain in ("0a1b2c3d" * 5, "TransformerEncoderLayer2", "/Data1/run7/abcdefgh"):
        assert secrets.redact(plain) == plain
    digest = "sha256 " + "0a1b2c3d" * 8
    assert secrets.redact(digest) == digest
    path = "reading /Data1/" + "abcdefgh/" * 6 + "x"
    assert secrets.redact(path) == path


@each_row(
    "text",
    [
        "saved to https://docs.example.org/a@b",
        "--bos-token <s> --eos-token </s> --tokenizer-type Llama3 --pad-token <pad>",
        "monkey: abcdefghijk key: abcdefgh keys=q_proj,v_proj",
        "token=<|endoftext|> token: AutoTokenizerFastForLlama",
        "connected to tcp://10.0.0.1:29500",
        "consumed tokens: 658636800 | loss 2.7",
        "tokenizer: AutoTokenizer pad_token=<pad> eos_token='</s>'",
        "api_key: None",
        "https://docs.pytorch.org/docs/stable/notes/cuda.html",
        "WorkNCCL(SeqNum=29488, OpType=ALLREDUCE)",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert secrets.redact(text) == text


@settings(deadline=None)
@given(st.text(alphabet="abekpstuw0_-./", max_size=16))
@example("two.log")
@example("my-key1234")
@example("xoxb-12345678901")
def test_short_names_are_told_from_secrets_without_a_look(text: str) -> None:

    assert secrets._may_hold(text) == (secrets._gate().search(text) is not None)
