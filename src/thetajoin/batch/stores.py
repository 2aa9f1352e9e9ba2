"""What object stores and their clients say when they cannot be used: few words, and what to do."""

from __future__ import annotations

import re

from thetajoin.errors import one_line

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ANSWER = re.compile(r"<Code>(.*?)</Code>(?:.*?<Message>(.*?)</Message>)?", re.DOTALL)
_ADDRESS = re.compile(r"(https?://)(?:[^/@\s]*@)?([^/?#\s]+)")
# Catalogs refuse people too; this is for stores.
_STORE = re.compile(r"S3 error|AWS Error|AmazonS3|Bucket '.*' not found")
_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_ADVICE = (
    ("NoSuchBucket|Bucket '.*' not found", "there is no such bucket: check its name"),
    # Where nothing else is given, clients ask the machine they run on.
    ("/latest/api/token|/latest/meta-data", f"there are no credentials: set {_KEYS}"),
    (
        "InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|ACCESS_DENIED|ExpiredToken|"
        "InvalidToken|403 Forbidden|401 Unauthorized",
        f"the store refuses the credentials: check {_KEYS}, and what they may do",
    ),
    (
        "URL scheme is not allowed|BadScheme",
        "the address is not https: set AWS_ALLOW_HTTP=true if that is meant",
    ),
    (
        "tcp connect error|dns error|client error|operation timed out|NETWORK_CONNECTION",
        "no store answers{at}: check AWS_ENDPOINT_URL, and the network",
    ),
)


def store_failure(said: str) -> str:
    """An error's text in one line; of an object store's, what to do and the end of what it said.

    The rest is left out: stores give back what they were asked, with the access key's id.

    >>> store_failure("Generic S3 error: GET http://h:9/b?x in 2s: 404 <Code>NoSuchBucket</Code>")
    'there is no such bucket: check its name (NoSuchBucket)'
    >>> store_failure("Generic S3 error: GET http://h:9/b in 2s ↳ tcp connect error ↳ refused")
    'no store answers at http://h:9: check AWS_ENDPOINT_URL, and the network (refused)'
    >>> store_failure("no table here")
    'no table here'
    """
    plain = one_line(_COLOUR.sub("", said))
    if not _STORE.search(plain):
        return plain
    answer = _ANSWER.search(plain)
    last = plain.rpartition("↳")[2].strip()
    told = ": ".join(part for part in answer.groups() if part) if answer else last
    address = _ADDRESS.search(plain)
    at = f" at {address[1]}{address[2]}" if address else ""
    for pattern, advice in _ADVICE:
        if re.search(pattern, plain):
            return f"{advice.format(at=at)} ({told})"
    return told
