"""Values to hide are shown in no encoding, and not in part."""

from __future__ import annotations

import html
import json
import random
import re
import shlex
from urllib.parse import quote, quote_plus

import pytest

from thetajoin.errors import ThetaJoinError
from thetajoin.jobs.systems import TopicSource
from thetajoin.secrets import HIDDEN, Secret, forget, hide, hide_passwords, redact

ENCODINGS = {
    "plain": str,
    "json": json.dumps,
    "json text": lambda value: json.dumps(value, ensure_ascii=False),
    "json in json": lambda value: json.dumps(json.dumps({"password": value})),
    "repr": repr,
    "shell": shlex.quote,
    "url": lambda value: quote(value, safe=""),
    "path": quote,
    "form": quote_plus,
    "lower url": lambda value: re.sub("%..", lambda at: at[0].lower(), quote(value, safe="")),
    "xml": html.escape,
    "jaas": lambda value: '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"',
}


@pytest.fixture(autouse=True)
def nothing_hidden_before_and_after():
    forget()
    yield
    forget()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_no_encoding_shows_a_secret(encoding):
    rng = random.Random(encoding)
    for _ in range(200):
        body = [
            rng.choice("abcXYZ019 \"'\\%+&/@:;$=#<>\n\téß漢") for _ in range(rng.randint(4, 12))
        ]
        secret = f"k{''.join(body)}z"
        hide(secret)
        written = ENCODINGS[encoding](secret)
        assert redact(f"cannot log in ({written})").count(HIDDEN) >= 1
        inner = written.strip("\"'")
        assert inner not in redact(f"before {written} after"), (secret, written)
        forget()


def test_no_representation_shows_a_secret():
    secret = Secret("hunter22")
    source = TopicSource(secret, "t", options=(("password", secret),))
    shown = f"{secret!r} {[secret]} { ({'a': secret}) } {source!r} {(secret,)}"
    assert "hunter22" not in shown
    assert f"{source.servers}" == "hunter22"


def test_a_message_is_shortened_after_it_was_redacted():
    hide("swordfish" * 40)
    message = str(ThetaJoinError("x" * 590 + "swordfish" * 40 + "y" * 900))
    assert "sword" not in message
    assert "fish" not in message


def test_a_secret_with_a_line_break_is_hidden_in_one_line():
    hide("first\nsecond")
    assert "second" not in str(ThetaJoinError("key first\nsecond is wrong"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("jdbc:x://h/db?user=u&password=secret&x=1", "jdbc:x://h/db?user=u&password=[hidden]&x=1"),
        ("jdbc:x://h/db;password=secret;x=1", "jdbc:x://h/db;password=[hidden];x=1"),
        ("kafka://u:p@ss@h:9092", "kafka://u:[hidden]@h:9092"),
        ("s3://key@bucket/a", "s3://[hidden]@bucket/a"),
        ("http://h/path?token=abc", "http://h/path?token=[hidden]"),
        ("s3://bucket/a@b.csv", "s3://bucket/a@b.csv"),
        ("mail me@example.com", "mail me@example.com"),
    ],
)
def test_addresses_show_no_password(text, shown):
    assert hide_passwords(text) == shown
