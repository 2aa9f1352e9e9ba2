"""Errors of Kafka's client and of Spark's connector to it, in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from thetajoin.errors import ThetaJoinError, one_line
from thetajoin.spark.connectors.specs import TopicSink, TopicSource
from thetajoin.spark.connectors.tls_failures import tls_reason
from thetajoin.spark.failures import reason

Place = TopicSource | TopicSink
# After this, Spark repeats all offsets and the plan, and so the names of all topics.
_PLAN = "=== Streaming Query ==="
_RAISED = re.compile(r"org\.apache\.kafka\.common\.(?:\w+\.)*(\w+Exception): (.+)")
_LOST = re.compile(r"Some data may have been lost because .*?Reason:\s*(.+?\.)(?=\s|$)", re.S)
_OWN = "kafka."
_NO_TOPIC, _TOO_LARGE = "UnknownTopicOrPartitionException", "RecordTooLargeException"
# Kafka says so where a broker does not make topics by itself, once it has waited for a minute.
_NOT_MADE = re.compile(r"Topic \S+ not present in metadata after")
_LOGIN = ("SaslAuthenticationException", "UnsupportedSaslMechanismException")
_NO_BROKER = re.compile(
    r"Timed out waiting for a node assignment|No resolvable bootstrap urls"
    r"|Timed out waiting to send the call|Timeout expired while fetching topic metadata"
    r"|Cannot fetch record for offset|Failed to get offset"
)
# Also where a topic takes less than a batch: Kafka's client then sends the same batch for two
# minutes, and never says that it is too large.
_NOT_TAKEN = re.compile(r"Expiring \d+ record.+")


@contextmanager
def kafka_errors(what: str, place: Place) -> Iterator[None]:
    """Errors of Spark's and Kafka's as one line of ours.

    Those of Kafka's own come as errors of the bridge to the JVM, which is no part of PySpark's API.
    """
    try:
        yield
    except ThetaJoinError:
        raise
    except Exception as error:
        raise ThetaJoinError(f"{what}: {kafka_reason(error, place)}") from error


def no_topic(error: BaseException) -> bool:
    """Whether Kafka says that a topic is not there; which one, it does not say."""
    return _NO_TOPIC in told_by(error) and not _NOT_MADE.search(told_by(error))


def no_broker(error: BaseException) -> bool:
    """Whether Kafka's client has waited in vain."""
    return _NO_BROKER.search(told_by(error)) is not None


def told_by(error: BaseException) -> str:
    """What an error says, without Spark's description of the query."""
    return str(error).partition(_PLAN)[0]


def about(error: BaseException, places: list[Place]) -> Place:
    """Which of a job's topics an error names; the first of them if it names none."""
    text = told_by(error)
    if _TOO_LARGE in text:
        places = [place for place in places if isinstance(place, TopicSink)] or places
    named = [place for place in places if _names(text, place.topic)]
    return (named or places)[0]


def _names(text: str, topic: str) -> bool:
    """Whether a topic or a partition of it is named, and not one with a longer name."""
    return re.search(rf"(?<![\w.-]){re.escape(topic)}(?:-\d+)?(?![\w-]|\.\w)", text) is not None


def kafka_reason(error: BaseException, place: Place) -> str:
    """Why a topic could not be read or written, in one line.

    >>> lost = "Caused by: org.apache.kafka.common.errors.SaslAuthenticationException: no such user"
    >>> kafka_reason(Exception(lost), TopicSource("host:9092", "orders"))
    'the broker at host:9092 refuses the login: no such user'
    """
    text = told_by(error)
    servers, topic = place.servers, place.topic
    lost = _LOST.search(text)
    if lost is not None:
        return (
            f"messages of topic {topic!r} at {servers} are gone before they were read: "
            f"{one_line(lost[1]).rstrip('.')}; to go on without them, add failOnDataLoss = false "
            "to the source's options"
        )
    if _NOT_MADE.search(text):
        return (
            f"there is no topic {topic!r} at {servers}, and the broker makes none by itself: "
            "create the topic"
        )
    tls = tls_reason(text, servers, kafka_options(place))
    if tls is not None:
        return tls
    raised = {kind: said.strip() for kind, said in _RAISED.findall(text)}
    if _NO_TOPIC in raised:
        return f"there is no topic {topic!r} at {servers}"
    for kind in _LOGIN:
        if kind in raised:
            return f"the broker at {servers} refuses the login: {raised[kind]}"
    if "TopicAuthorizationException" in raised:
        what = "write to" if isinstance(place, TopicSink) else "read"
        return f"this user may not {what} topic {topic!r} at {servers}"
    if _TOO_LARGE in raised:
        return (
            f"a match is too large for topic {topic!r} at {servers}: "
            f"{raised[_TOO_LARGE]} (the topic's max.message.bytes, and "
            "kafka.max.request.size in the sink's options)"
        )
    waited = _NOT_TAKEN.search(text)
    if waited is not None:
        return (
            f"topic {topic!r} at {servers} took no messages in time ({waited[0].strip()}): the "
            "broker may be gone, or the topic's max.message.bytes below kafka.batch.size, an "
            "option of the sink"
        )
    if _NO_BROKER.search(text):
        return f"no Kafka broker answers at {servers}{_asked(place)}"
    if raised:
        kind, said = list(raised.items())[-1]
        return _cause(text) if kind == "KafkaException" else f"{kind}: {said}"
    return reason(error)


def _asked(place: Place) -> str:
    """How it was asked, as a broker that expects another protocol says nothing at all."""
    return f" (security.protocol is {kafka_options(place).get('security.protocol', 'PLAINTEXT')})"


def kafka_options(place: Place) -> dict[str, str]:
    """The options that are Kafka's own, by its names for them."""
    given = {name.lower(): value for name, value in place.options}
    own = {name: value for name, value in given.items() if name.startswith(_OWN)}
    return {name.removeprefix(_OWN): value for name, value in own.items()}


def _cause(text: str) -> str:
    """The innermost cause."""
    causes = re.findall(r"^(?:Caused )?(?:by)?: (?:[\w$]+\.)*([\w$]+: .+)$", text, re.M)
    return one_line(causes[-1]) if causes else one_line(text.splitlines()[0])
