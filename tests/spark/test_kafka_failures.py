"""What Kafka and Spark say of a failure, and what we make of it: one line with what to do."""

from __future__ import annotations

import pytest

from thetajoin.jobs.kafka import about, kafka_reason, no_topic
from thetajoin.jobs.systems import TopicSink, TopicSource

BRIDGE = "An error occurred while calling o68.collectToPython.\n: "
FAILED = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage "
    "failure: Task 0 in stage 8.0 failed 1 times (TID 8) (10.0.0.1 executor driver): "
)
PLAN = (
    "\n\tat org.apache.X\n SQLSTATE: XXKST\n=== Streaming Query ===\nCurrent Committed Offsets: "
    '{KafkaV2[Subscribe[orders]]: {"orders":{"0":1}}, KafkaV2[Subscribe[paid]]: {}}\n'
)
ERRORS = "org.apache.kafka.common.errors."
SOURCE = TopicSource("h:1", "orders", options=(("kafka.security.protocol", "SASL_SSL"),))
SINK = TopicSink("h:1", "pairs")
TRUSTING = TopicSource(
    "h:1",
    "orders",
    options=(
        ("kafka.ssl.Truststore.location", "/t.p12"),
        ("kafka.ssl.keystore.location", "/k.p12"),
    ),
)
HANDSHAKE = (
    f"{BRIDGE}x.ExecutionException: {ERRORS}SslAuthenticationException: SSL handshake failed\n"
    "\tat x\nCaused by: javax.net.ssl.SSLHandshakeException: "
)
UNREAD = (
    f"{BRIDGE}org.apache.kafka.common.KafkaException: Failed to create new KafkaAdminClient\n\tat x"
    "\nCaused by: org.apache.kafka.common.KafkaException: Failed to load SSL keystore "
)


@pytest.mark.parametrize(
    ("said", "place", "told"),
    [
        (
            f"{BRIDGE}java.util.concurrent.ExecutionException: {ERRORS}SaslAuthenticationException:"
            " Authentication failed: Invalid username or password\n\tat x",
            SOURCE,
            "the broker at h:1 refuses the login: Authentication failed: Invalid username or "
            "password",
        ),
        (
            f"{BRIDGE}java.util.concurrent.ExecutionException: {ERRORS}UnsupportedSaslMechanism"
            "Exception: Client SASL mechanism 'X' not enabled in the server, enabled are [PLAIN]",
            SOURCE,
            "the broker at h:1 refuses the login: Client SASL mechanism 'X' not enabled in the "
            "server, enabled are [PLAIN]",
        ),
        (
            f"{BRIDGE}x.ExecutionException: {ERRORS}TopicAuthorizationException: Topic "
            "authorization failed.",
            SOURCE,
            "this user may not read topic 'orders' at h:1",
        ),
        (
            f"{FAILED}{ERRORS}TopicAuthorizationException: Not authorized: [pairs]{PLAN}",
            SINK,
            "this user may not write to topic 'pairs' at h:1",
        ),
        (
            f"{BRIDGE}org.apache.kafka.common.config.ConfigException: Invalid value SASL for "
            "configuration security.protocol: String must be one of: SSL",
            SOURCE,
            "ConfigException: Invalid value SASL for configuration security.protocol: String must "
            "be one of: SSL",
        ),
        (
            f"{BRIDGE}org.apache.kafka.common.KafkaException: Failed to create new KafkaAdminClient"
            "\n\tat x\nCaused by: org.apache.kafka.common.KafkaException: Failed to create new "
            "NetworkClient\n\tat y\nCaused by: java.lang.IllegalArgumentException: Login module "
            "control flag not specified in JAAS config\n\tat z",
            SOURCE,
            "IllegalArgumentException: Login module control flag not specified in JAAS config",
        ),
        (
            f"{FAILED}{ERRORS}RecordTooLargeException: The message is 9 bytes{PLAN}",
            SINK,
            "a match is too large for topic 'pairs' at h:1: The message is 9 bytes (the topic's "
            "max.message.bytes, and kafka.max.request.size in the sink's options)",
        ),
        (
            f"{FAILED}{ERRORS}TimeoutException: Topic pairs not present in metadata after 60000 ms."
            f"\nCaused by: {ERRORS}UnknownTopicOrPartitionException: This server{PLAN}",
            SINK,
            "there is no topic 'pairs' at h:1, and the broker makes none by itself: create the "
            "topic",
        ),
        (
            f"x.ExecutionException: {ERRORS}UnknownTopicOrPartitionException: This server{PLAN}",
            SOURCE,
            "there is no topic 'orders' at h:1",
        ),
        (
            f"{FAILED}org.apache.spark.sql.kafka010.X: [KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED] "
            "Some data may have been lost because they are not available in Kafka;\neither "
            "the data was aged out.\nReason:\nPartition orders-0 offset was changed from 20 to 5.\n"
            f"This could be either 1) a user error. SQLSTATE: 22000{PLAN}",
            SOURCE,
            "messages of topic 'orders' at h:1 are gone before they were read: Partition orders-0 "
            "offset was changed from 20 to 5; to go on without them, add failOnDataLoss = false to "
            "the source's options",
        ),
        (
            f"{FAILED}{ERRORS}TimeoutException: Expiring 10 record(s) for pairs-0:120093 ms has "
            f"passed{PLAN}",
            SINK,
            "topic 'pairs' at h:1 took no messages in time (Expiring 10 record(s) for "
            "pairs-0:120093 ms has passed): the broker may be gone, or the topic's "
            "max.message.bytes below kafka.batch.size, an option of the sink",
        ),
        (
            f"{BRIDGE}x.ExecutionException: {ERRORS}TimeoutException: Timed out waiting for a node "
            "assignment. Call: describeTopics",
            SOURCE,
            "no Kafka broker answers at h:1 (security.protocol is SASL_SSL)",
        ),
        (
            f"{HANDSHAKE}PKIX path validation failed: java.security.cert.CertPathValidatorException"
            ": signature check failed",
            TRUSTING,
            "the certificate of the broker at h:1 is not trusted, as the truststore '/t.p12' does "
            "not know its CA: name a truststore with the CA's certificate, "
            "kafka.ssl.truststore.location",
        ),
        (
            f"{HANDSHAKE}PKIX path building failed: sun.security.provider.certpath.SunCertPath"
            "BuilderException: unable to find valid certification path to requested target",
            SOURCE,
            "the certificate of the broker at h:1 is not trusted, as it is unknown: name a "
            "truststore with the CA's certificate, kafka.ssl.truststore.location",
        ),
        (
            f"{HANDSHAKE}PKIX path validation failed: java.security.cert.CertPathValidatorException"
            ": validity check failed\nCaused by: java.security.cert.CertificateExpiredException: "
            "NotAfter: Thu Jan 01 00:00:00 UTC 2026\n\tat x",
            SOURCE,
            "the certificate of the broker at h:1, or its CA's, has expired (NotAfter: Thu Jan 01 "
            "00:00:00 UTC 2026): it needs a new one",
        ),
        (
            f"{HANDSHAKE}No subject alternative DNS name matching h found.\n\tat x",
            SOURCE,
            "the certificate of the broker at h:1 is for another host (No subject alternative DNS "
            "name matching h found): write the broker's name as its certificate has it, or have a "
            "certificate made for this one",
        ),
        (
            f"{HANDSHAKE}Received fatal alert: bad_certificate\n\tat x",
            SOURCE,
            "the broker at h:1 asks for a certificate of the client: name a keystore that has one, "
            "kafka.ssl.keystore.location, and its password, kafka.ssl.keystore.password",
        ),
        (
            f"{HANDSHAKE}Received fatal alert: bad_certificate\n\tat x",
            TRUSTING,
            "no TLS with the broker at h:1: Received fatal alert: bad_certificate",
        ),
        (
            f"{HANDSHAKE}Received fatal alert: protocol_version\n\tat x",
            SOURCE,
            "no TLS with the broker at h:1: Received fatal alert: protocol_version",
        ),
        (
            f"{UNREAD}/t.p12 of type JKS\n\tat x\nCaused by: java.nio.file.NoSuchFileException: "
            "/t.p12\n\tat x",
            TRUSTING,
            "there is no file '/t.p12': give the truststore's full path, "
            "kafka.ssl.truststore.location",
        ),
        (
            f"{UNREAD}/k.p12 of type JKS\n\tat x\nCaused by: java.io.IOException: keystore "
            "password was incorrect\n\tat x",
            TRUSTING,
            "the password of the keystore '/k.p12' is wrong: give the right one, "
            "kafka.ssl.keystore.password",
        ),
        (
            f"{UNREAD}/t.p12 of type JKS\n\tat x\nCaused by: java.nio.file.AccessDeniedException: "
            "/t.p12\n\tat x",
            TRUSTING,
            "the truststore '/t.p12' may not be read by this user: change the file's rights",
        ),
        (
            f"{UNREAD}/t.p12 of type JKS\n\tat x\nCaused by: java.io.EOFException\n\tat x",
            TRUSTING,
            "'/t.p12' is no truststore of type JKS: give another file, "
            "kafka.ssl.truststore.location, or say what it is, kafka.ssl.truststore.type",
        ),
    ],
)
def test_one_line_with_what_to_do(said: str, place: TopicSource | TopicSink, told: str) -> None:
    assert kafka_reason(Exception(said), place) == told


def test_which_topic_it_is_about() -> None:
    """Spark repeats all topics below an error; a name that is part of another is not meant."""
    paid, more = TopicSource("h:1", "paid"), TopicSource("h:1", "orders-paid.new")
    said = Exception(f"{FAILED}{ERRORS}RecordTooLargeException: orders{PLAN}")
    assert about(said, [SOURCE, paid, SINK]) is SINK
    assert about(Exception(f"something{PLAN}"), [SOURCE, paid]) is SOURCE
    assert about(Exception("Partition orders-paid.new-0"), [SOURCE, paid, more]) is more
    gone = Exception(f"{ERRORS}UnknownTopicOrPartitionException: x{PLAN}")
    assert no_topic(gone)
    assert not no_topic(Exception(f"something else{PLAN}"))
