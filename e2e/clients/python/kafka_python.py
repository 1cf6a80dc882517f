"""kafka-python in the matrix of clients; `contract.py` has the frame."""

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, KafkaTimeoutError

from contract import LIMIT, MORE, PARTITIONS, RECORDS, RETENTION, Refused, check_order, expected, record, run, until


def admin(names):
    return KafkaAdminClient(bootstrap_servers=names.bootstrap.split(","))


def consumer(names, group):
    return KafkaConsumer(bootstrap_servers=names.bootstrap.split(","), group_id=group, auto_offset_reset="earliest",
                         enable_auto_commit=False, heartbeat_interval_ms=500)


def send(names, topic, numbers, codec, partition=None):
    producer = KafkaProducer(bootstrap_servers=names.bootstrap.split(","), acks="all", enable_idempotence=True, compression_type=codec)
    sent = []
    for number in numbers:
        key, value, own = record(number)
        sent.append(producer.send(topic, value, key, partition=own if partition is None else partition))
    for future in sent:
        future.get(LIMIT)
    producer.close()


def take(reader, seen, milliseconds=100):
    """One poll; gives how many records it brought."""
    count = 0
    for records in reader.poll(timeout_ms=milliseconds).values():
        seen.update(r.value for r in records)
        count += len(records)
    return count


def described(client, name):
    return next((t for t in client.describe_topics([name]) if all(p["leader_id"] >= 0 for p in t["partitions"])), None)


def create(names):
    client = admin(names)
    client.create_topics({names.data: {"num_partitions": PARTITIONS, "replication_factor": 3}})
    topic = until("all leaders", lambda: described(client, names.data))
    client.close()
    assert [len(p["replica_nodes"]) for p in topic["partitions"]] == [3] * PARTITIONS, "replicas"
    return f"kafka-python {kafka.__version__}"


def produce(names):
    codecs = [None, "gzip", "snappy", "lz4", "zstd"]
    part = RECORDS // len(codecs)
    for index, codec in enumerate(codecs):
        send(names, names.data, range(index * part, (index + 1) * part), codec)
    return " ".join(codec or "none" for codec in codecs)


def assign(names):
    reader = consumer(names, None)
    places = [TopicPartition(names.data, p) for p in range(PARTITIONS)]
    reader.assign(places)
    reader.seek_to_beginning(*places)
    found = {p: [] for p in range(PARTITIONS)}

    def read():
        for place, records in reader.poll(timeout_ms=100).items():
            found[place.partition].extend(r.value for r in records)
        return sum(map(len, found.values())) >= RECORDS

    until("all records", read)
    reader.close()
    check_order(found, RECORDS)


def group(names):
    seen = set()
    first = consumer(names, names.group)
    first.subscribe([names.data])

    def polled(shares, *readers):
        for reader in readers:
            take(reader, seen, 50)
        return sorted(len(reader.assignment()) for reader in readers) == shares

    until("all partitions", lambda: polled([PARTITIONS], first))
    second = consumer(names, names.group)
    second.subscribe([names.data])
    until("two members to share", lambda: polled([1, 2], first, second))
    second.close()
    until("all partitions again", lambda: polled([PARTITIONS], first))
    each = RECORDS // PARTITIONS
    until("all positions", lambda: take(first, seen) == 0 and all(first.position(p) == each for p in first.assignment()))
    assert seen == expected(0, RECORDS), f"{len(seen)} records"
    first.commit()
    first.close()
    return "3, 2+1, 3 partitions"


def resume(names):
    send(names, names.data, range(RECORDS, RECORDS + MORE), None)
    seen = set()
    reader = consumer(names, names.group)
    reader.subscribe([names.data])
    until("the records after the commit", lambda: take(reader, seen) == 0 and len(seen) >= MORE)
    reader.commit()
    reader.close()
    assert seen == expected(RECORDS, MORE), f"{len(seen)} records, not those after the commit"


def topics(names):
    client = admin(names)
    client.create_topics({names.admin: {"num_partitions": 1, "replication_factor": 3}})
    until("the topic in the list", lambda: names.admin in client.list_topics())
    until("a leader", lambda: described(client, names.admin))
    client.close()


def configs(names):
    client = admin(names)
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, names.admin, {"retention.ms": RETENTION})])

    def value():
        found = client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, names.admin)])
        return found["topic"][names.admin].get("retention.ms", {}).get("value")

    until("the config", lambda: str(value()) == RETENTION)
    client.close()


def partitions(names):
    client = admin(names)
    client.create_partitions({names.admin: 4})
    until("four partitions", lambda: len((described(client, names.admin) or {"partitions": []})["partitions"]) == 4)
    client.close()


def delete_records(names):
    send(names, names.admin, range(20), None, 0)
    client = admin(names)
    place = TopicPartition(names.admin, 0)
    client.delete_records({place: 5})
    client.close()
    reader = consumer(names, None)
    earliest = reader.beginning_offsets([place])[place]
    reader.close()
    assert earliest == 5, f"starts at {earliest}"


def delete_topic(names):
    client = admin(names)
    client.create_topics({names.gone: {"num_partitions": 1, "replication_factor": 3}})
    until("the topic", lambda: names.gone in client.list_topics())
    client.delete_topics([names.gone])
    until("its end", lambda: names.gone not in client.list_topics())
    client.close()


def groups(names):
    client = admin(names)
    assert names.group in [g["group_id"] for g in client.list_groups()], "not in the list"
    found = client.describe_groups([names.group])[names.group]
    client.close()
    return str(found["group_state"]).lower()


def transactions(names):
    producer = KafkaProducer(bootstrap_servers=names.bootstrap.split(","), transactional_id=names.transaction, max_block_ms=15000)
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(names.admin, b"in a transaction", partition=1)
        producer.commit_transaction()
    except KafkaTimeoutError:
        raise  # no word of the broker's
    except KafkaError as error:
        raise Refused(f"{type(error).__name__}: {error}") from error
    finally:
        producer.close(timeout=1)


run({
    "create": create, "produce": produce, "assign": assign, "group": group, "resume": resume, "topics": topics, "configs": configs,
    "partitions": partitions, "delete-records": delete_records, "delete-topic": delete_topic, "groups": groups,
    "transactions": transactions,
})
