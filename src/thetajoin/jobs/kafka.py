"""Kafka topics as streams of rows; messages that cannot be read are counted and kept aside.

Spark's parsers pass over some of what is wrong: whatever follows a JSON object or an Avro record,
bytes that are no text, an empty line of CSV. Here a message counts only as a whole.

Errors of Kafka's client, of Spark's connector to it and of TLS between them become one line.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from thetajoin.errors import SchemaError, ThetaJoinError, one_line
from thetajoin.jobs.progress import POISON
from thetajoin.jobs.systems import TopicSink, TopicSource
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
_HANDSHAKE = "SslAuthenticationException"
_SAID = re.compile(r"javax\.net\.ssl\.SSL\w*Exception: (.+)")
# Java checks whom a certificate is for last, so those of strangers never come this far.
_HOST = re.compile(r"No subject alternative .+|No name matching .+")
_EXPIRED = re.compile(r"CertificateExpiredException: (.+)")
_STRANGER = "PKIX path"
# What a broker says to a client without a certificate; Java 17 says the first.
_CLIENT = re.compile(r"Received fatal alert: (?:bad_certificate|certificate_required)")
# Kafka calls truststores so too.
_STORE = re.compile(r"Failed to load (?:PEM )?SSL keystore (.+?)(?: of type (\w+))?$", re.M)
# No real user's, because a password must not be sent in the clear. A broker refuses it at once, one
# without users too, and a refusal shows that it has understood.
_NOBODY = {
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    "username='thetajoin-nobody' password='none';",
}
TLS = {"kafka.security.protocol": "SASL_SSL", **_NOBODY}
PLAIN = {"kafka.security.protocol": "SASL_PLAINTEXT", **_NOBODY}
SAMPLE = 1000  # messages
# A missing broker is reported within seconds; Kafka's own limit is a minute, and Spark asks
# three times.
_PATIENCE = {
    "kafka.default.api.timeout.ms": "15000",
    "kafka.request.timeout.ms": "10000",
    "fetchOffset.numRetries": "1",
}
# While a job runs, on a machine that may be busy with it: no false alarm, yet soon enough.
_BRIEF = {"kafka.default.api.timeout.ms": "10000", "kafka.request.timeout.ms": "8000"}
# A broker that understands the question refuses it within a round trip or two.
_AT_ONCE = {"kafka.default.api.timeout.ms": "4000", "kafka.request.timeout.ms": "3000"}
# A range without a message, from the end to the end, which Spark has no shorter word for.
_NOTHING = {
    "startingTimestamp": "253402300799999",
    "startingOffsetsByTimestampStrategy": "latest",
}
BAD, VALUE = "__thetajoin_bad", "__thetajoin_value"
_TEXT = "__thetajoin_text"
_BLANK = " \t\r\n"
# Read after an Avro message, it is still itself if the message ends where its schema says.
_MARK = b"thetajoin"


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
    return _NO_TOPIC in strip_plan(error) and not _NOT_MADE.search(strip_plan(error))


def no_broker(error: BaseException) -> bool:
    """Whether Kafka's client has waited in vain."""
    return _NO_BROKER.search(strip_plan(error)) is not None


def strip_plan(error: BaseException) -> str:
    """What an error says, without Spark's description of the query."""
    return str(error).partition(_PLAN)[0]


def about(error: BaseException, places: list[Place]) -> Place:
    """Which of a job's topics an error names; the first of them if it names none."""
    text = strip_plan(error)
    if _TOO_LARGE in text:
        places = [place for place in places if isinstance(place, TopicSink)] or places
    named = [place for place in places if _is_named(text, place.topic)]
    return (named or places)[0]


def _is_named(text: str, topic: str) -> bool:
    """Whether a topic or a partition of it is named, and not one with a longer name."""
    return re.search(rf"(?<![\w.-]){re.escape(topic)}(?:-\d+)?(?![\w-]|\.\w)", text) is not None


def kafka_reason(error: BaseException, place: Place) -> str:
    """Why a topic could not be read or written, in one line.

    >>> lost = "Caused by: org.apache.kafka.common.errors.SaslAuthenticationException: no such user"
    >>> kafka_reason(Exception(lost), TopicSource("host:9092", "orders"))
    'the broker at host:9092 refuses the login: no such user'
    """
    text = strip_plan(error)
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
        # Which protocol, because a broker that expects another one says nothing at all.
        protocol = kafka_options(place).get("security.protocol", "PLAINTEXT")
        return f"no Kafka broker answers at {servers} (security.protocol is {protocol})"
    if raised:
        kind, said = list(raised.items())[-1]
        return _find_cause(text) if kind == "KafkaException" else f"{kind}: {said}"
    return reason(error)


def kafka_options(place: Place) -> dict[str, str]:
    """The options that are Kafka's own, by its names for them."""
    given = {name.lower(): value for name, value in place.options}
    own = {name: value for name, value in given.items() if name.startswith(_OWN)}
    return {name.removeprefix(_OWN): value for name, value in own.items()}


def _find_cause(text: str) -> str:
    """The innermost cause."""
    causes = re.findall(r"^(?:Caused )?(?:by)?: (?:[\w$]+\.)*([\w$]+: .+)$", text, re.M)
    return one_line(causes[-1]) if causes else one_line(text.splitlines()[0])


def tls_reason(text: str, servers: str, options: Mapping[str, str]) -> str | None:
    """Why there is no TLS, and what to do; None if an error is about something else.

    options: Kafka's own, such as ``ssl.truststore.location``.

    >>> said = "KafkaException: Failed to load SSL keystore /t.p12 of type JKS"
    >>> cause = "Caused by: java.nio.file.NoSuchFileException: /t.p12"
    >>> tls_reason(f"{said}\\n{cause}", "host:9092", {})
    "there is no file '/t.p12': give the truststore's full path, kafka.ssl.truststore.location"
    """
    store = _STORE.search(text)
    if store is not None:
        return _explain_store(text, store[1], store[2] or "PEM", options)
    if _HANDSHAKE not in text:
        return None
    said = _SAID.findall(text)
    whose = f"the certificate of the broker at {servers}"
    for found in filter(None, map(_HOST.search, said)):
        return (
            f"{whose} is for another host ({found[0].rstrip('.')}): write the broker's name as "
            "its certificate has it, or have a certificate made for this one"
        )
    expired = _EXPIRED.search(text)
    if expired is not None:
        return f"{whose}, or its CA's, has expired ({expired[1].strip()}): it needs a new one"
    if any(_STRANGER in line for line in said):
        location = options.get("ssl.truststore.location")
        known = f"the truststore {location!r} does not know its CA" if location else "it is unknown"
        return (
            f"{whose} is not trusted, as {known}: name a truststore with the CA's certificate, "
            "kafka.ssl.truststore.location"
        )
    if any(map(_CLIENT.search, said)) and "ssl.keystore.location" not in options:
        return (
            f"the broker at {servers} asks for a certificate of the client: name a keystore that "
            "has one, kafka.ssl.keystore.location, and its password, kafka.ssl.keystore.password"
        )
    told = said[-1].strip() if said else "the broker does not say why"
    return f"no TLS with the broker at {servers}: {told}"


def _explain_store(text: str, file: str, form: str, options: Mapping[str, str]) -> str:
    kind = "keystore" if file == options.get("ssl.keystore.location") else "truststore"
    option = f"kafka.ssl.{kind}"
    if "NoSuchFileException" in text:
        return f"there is no file {file!r}: give the {kind}'s full path, {option}.location"
    if "AccessDeniedException" in text:
        return f"the {kind} {file!r} may not be read by this user: change the file's rights"
    if "password was incorrect" in text:
        return (
            f"the password of the {kind} {file!r} is wrong: give the right one, {option}.password"
        )
    return (
        f"{file!r} is no {kind} of type {form}: give another file, {option}.location, or say what "
        f"it is, {option}.type"
    )


def mismatch(
    servers: str, options: Mapping[str, str], understands: Callable[[Mapping[str, str]], bool]
) -> str | None:
    """What to do about a broker that has not answered; None if it is not about TLS.

    options: Kafka's own, such as ``security.protocol``. understands: whether the broker answers
    anything to somebody with other options, `TLS` or `PLAIN`.

    >>> mismatch("host:9092", {"security.protocol": "PLAINTEXT"}, lambda asked: asked is TLS)[:24]
    'the broker at host:9092 '
    >>> mismatch("host:9092", {"security.protocol": "SSL"}, lambda asked: asked is TLS)
    """
    protocol = options.get("security.protocol", "PLAINTEXT")
    asked = protocol.upper().endswith("SSL")
    if not asked and understands(TLS):
        return (
            f"the broker at {servers} uses TLS, and security.protocol is {protocol}: set "
            "kafka.security.protocol to SSL, or SASL_SSL where users log in"
        )
    if asked and understands(PLAIN):
        return (
            f"the broker at {servers} does not use TLS on this port, and security.protocol is "
            f"{protocol}: give its port for TLS, or set kafka.security.protocol to PLAINTEXT, or "
            "SASL_PLAINTEXT where users log in"
        )
    if asked and _lacks_password(options) and understands(TLS):
        return (
            f"the truststore {options['ssl.truststore.location']!r} seems empty without its "
            "password: give it, kafka.ssl.truststore.password"
        )
    return None


def _lacks_password(options: Mapping[str, str]) -> bool:
    """Whether a truststore was given without a password, which PEM alone goes without.

    Java reads the certificates of a PKCS12 file only with it, and takes the rest for the whole.
    """
    form = options.get("ssl.truststore.type", "JKS")
    named = "ssl.truststore.location" in options
    return named and form.upper() != "PEM" and not options.get("ssl.truststore.password")


def check_broker(session: Any, place: Place, *, topic: bool = True) -> None:
    """Refuse a broker that does not answer, or one without the topic.

    A message of a source is read as well, which a user may have no right to. A sink's topic is
    looked at only: who may write need not have the right to read.
    """
    more = {} if isinstance(place, TopicSource) else _NOTHING
    try:
        _read_now(session, place, more).limit(1).collect()
    except Exception as error:
        if topic or not no_topic(error):
            silent = _explain_silence(session, place) if no_broker(error) else None
            raise ThetaJoinError(silent or kafka_reason(error, place)) from error


def _explain_silence(session: Any, place: Place) -> str | None:
    """What a broker that has not answered may have expected instead."""

    def understands(options: Mapping[str, str]) -> bool:
        other = TopicSink(place.servers, place.topic, options=tuple(options.items()))
        return does_answer(session, other, _AT_ONCE)

    return mismatch(place.servers, kafka_options(place), understands)


def does_answer(session: Any, place: Place, patience: Mapping[str, str] = _BRIEF) -> bool:
    """Whether a broker is there, asked for ten seconds; whatever it says is an answer."""
    try:
        _read_now(session, place, {**_NOTHING, **patience}).limit(1).collect()
    except Exception as error:
        return not no_broker(error)
    return True


def find_missing(session: Any, places: list[Place]) -> Place | None:
    """The first topic that is not there."""
    for place in places:
        try:
            _read_now(session, place, _NOTHING).limit(1).collect()
        except Exception as error:
            if no_topic(error):
                return place
    return None


def sample_schema(session: Any, source: TopicSource) -> tuple[str, int]:
    """The columns of a topic's first messages as SQL types, and how many messages were read."""
    rows = _read_now(session, source).limit(SAMPLE).select("value").collect()
    lines = [bytes(row.value).decode("utf-8", "replace") for row in rows if row.value is not None]
    if not lines:
        raise SchemaError(
            f"topic {source.topic!r} has no messages to tell the columns from: write "
            "schema = 'id BIGINT, ...'"
        )
    with tempfile.TemporaryDirectory(prefix="thetajoin-sample-") as folder:
        file = Path(folder, "sample.json")
        # A message is one line, whatever it holds.
        file.write_text("".join(" ".join(line.split("\n")) + "\n" for line in lines))
        options = {"inferTimestamp": "true", "columnNameOfCorruptRecord": BAD}
        found = session.read.options(**options).json(str(file)).schema
    fields = [field for field in found.fields if field.name != BAD]
    if not fields:
        raise SchemaError(
            f"the first {len(lines)} messages of topic {source.topic!r} are no JSON objects: "
            "give another format"
        )
    return str(StructType(fields).toDDL()), len(lines)


def read_topic(session: Any, name: str, source: TopicSource, schema: str | None) -> Any:
    """A topic as a stream of rows, without the messages that cannot be read."""
    raw = _read_stream(session, source)
    if source.format == "raw":
        return raw.drop("timestampType", "headers")
    read = read_messages(raw, source, schema)
    if source.fail_on_poison:
        told = F.concat(
            F.lit(f"topic {source.topic} has a message that cannot be read: partition "),
            F.col("partition"),
            F.lit(", offset "),
            F.col("offset"),
        )
        good = F.when(F.col(BAD), F.raise_error(told).cast("boolean")).otherwise(F.lit(True))
    else:
        read = read.observe(f"{POISON}{name}", F.count_if(F.col(BAD)).alias("messages"))
        good = ~F.col(BAD)
    kept = [F.col(column).alias(f"kafka_{column}") for column in source.metadata]
    fields = [name for name in read.schema[VALUE].dataType.names if name != BAD]
    clash = {f"kafka_{column}" for column in source.metadata} & set(fields)
    if clash:
        raise SchemaError(f"the messages have a column {min(clash)!r} of their own")
    values = [F.col(VALUE).getField(field).alias(field) for field in fields]
    return read.where(good).select(*values, *kept)


def read_poison(session: Any, source: TopicSource, schema: str | None) -> Any:
    """The messages of a topic that cannot be read, as they are, with where they were."""
    read = read_messages(_read_stream(session, source), source, schema)
    return read.where(F.col(BAD)).select(
        "topic", "partition", "offset", "timestamp", "key", "value"
    )


def _connection_options(place: Place) -> dict[str, str]:
    return {"kafka.bootstrap.servers": place.servers, **dict(place.options)}


def _read_now(session: Any, place: Place, more: dict[str, str] | None = None) -> Any:
    """The messages that a topic has now."""
    options = {**_PATIENCE, **_connection_options(place), "subscribe": place.topic}
    options |= {"startingOffsets": "earliest", "endingOffsets": "latest", **(more or {})}
    return session.read.format("kafka").options(**options).load()


def _read_stream(session: Any, source: TopicSource) -> Any:
    options = {
        **_connection_options(source),
        "subscribe": source.topic,
        "startingOffsets": source.starting,
    }
    if source.most is not None:
        options["maxOffsetsPerTrigger"] = str(source.most)
    return session.readStream.format("kafka").options(**options).load()


def read_messages(raw: Any, source: TopicSource, schema: str | None) -> Any:
    """Messages with their value as a struct, and whether it could not be read."""
    if source.format == "avro":
        assert source.avro is not None
        return _read_avro(raw, source.avro)
    with_bad = StructType.fromDDL(schema).add(BAD, "string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD}
    text = F.col(_TEXT)
    csv = source.format == "csv"
    value = (
        F.from_csv(text, with_bad.toDDL(), options) if csv else F.from_json(text, with_bad, options)
    )
    unread = F.col(VALUE).isNull() | F.col(VALUE).getField(BAD).isNotNull()
    more = F.length(F.rtrim(text, F.lit(_BLANK))) == 0 if csv else ~_is_one_object(text)
    read = raw.select("*", F.col("value").cast("string").alias(_TEXT))
    read = read.select("*", value.alias(VALUE))
    bad = F.coalesce(unread | ~F.is_valid_utf8(text) | more, F.lit(True))
    return read.select("*", bad.alias(BAD)).drop(_TEXT)


def _is_one_object(text: Any) -> Any:
    """Whether nothing follows the JSON object that a message begins with.

    Where the first brace that closes is at the end, nothing does. Only other messages, those with
    objects in them, are parsed a second time: as the one element of a list, with a field after it.
    """
    flat = F.instr(text, "}") == F.length(text)
    wrapped = F.concat(F.lit('{"one": ['), text, F.lit('], "end": 1}'))
    parsed = F.from_json(wrapped, "one ARRAY<STRING>, end INT")
    alone = (F.size(parsed.getField("one")) == 1) & parsed.getField("end").isNotNull()
    return F.when(flat, F.lit(True)).otherwise(F.coalesce(alone, F.lit(False)))


def _read_avro(raw: Any, schema: str) -> Any:
    from pyspark.sql.avro.functions import from_avro

    record = json.loads(schema)
    mark = {"type": "fixed", "name": "__thetajoin_mark", "size": len(_MARK)}
    marked = record | {"fields": [*record["fields"], {"name": BAD, "type": mark}]}
    message = F.concat(F.col("value"), F.lit(_MARK))
    value = from_avro(message, json.dumps(marked), {"mode": "PERMISSIVE"})
    whole = F.col(VALUE).getField(BAD).eqNullSafe(F.lit(_MARK))
    return raw.select("*", value.alias(VALUE)).select("*", (~whole).alias(BAD))
