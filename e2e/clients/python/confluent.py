"""confluent-kafka (librdkafka) in the matrix of clients; `contract.py` has the frame."""

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

from contract import LIMIT, MORE, PARTITIONS, RECORDS, RETENTION, Refused, check_order, expected, record, run, until


# Kept: results come to nothing when their client is collected.
ADMINS = []


def admin(names):
    if not ADMINS:
        ADMINS.append(AdminClient({"bootstrap.servers": names.bootstrap}))
    return ADMINS[0]


def consumer(names, group, **more):
    return Consumer({
        "bootstrap.servers": names.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "check.crcs": True,
        **more,
    })


def results(futures):
    return {key: future.result(LIMIT) for key, future in futures.items()}


def send(names, topic, numbers, codec, partition=None):
    failures = []
    producer = Producer({"bootstrap.servers": names.bootstrap, "acks": "all", "enable.idempotence": True, "compression.type": codec})
    for number in numbers:
        key, value, own = record(number)
        producer.produce(topic, value, key, own if partition is None else partition,
                         on_delivery=lambda error, _: failures.append(error) if error else None)
    if producer.flush(LIMIT):
        raise TimeoutError("records were not acknowledged")
    if failures:
        raise KafkaException(failures[0])


def take(reader, seen, seconds=0.1):
    """One poll; gives the record, which was added to what was seen."""
    message = reader.poll(seconds)
    if message is None:
        return None
    if message.error():
        raise KafkaException(message.error())
    seen.add(message.value())
    return message


def create(names):
    results(admin(names).create_topics([NewTopic(names.data, PARTITIONS, 3)]))
    topic = until("all leaders", lambda: described(names, names.data))
    assert all(len(p.replicas) == 3 for p in topic.partitions), "replicas"
    return f"librdkafka {confluent_kafka.libversion()[0]}"


def described(names, name):
    topic = results(admin(names).describe_topics(confluent_kafka.TopicCollection([name])))[name]
    return topic if all(p.leader and p.leader.id >= 0 for p in topic.partitions) else None


def produce(names):
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    part = RECORDS // len(codecs)
    for index, codec in enumerate(codecs):
        send(names, names.data, range(index * part, (index + 1) * part), codec)
    return " ".join(codecs)


def assign(names):
    reader = consumer(names, names.group + "-unused")
    reader.assign([TopicPartition(names.data, p, confluent_kafka.OFFSET_BEGINNING) for p in range(PARTITIONS)])
    found = {p: [] for p in range(PARTITIONS)}

    def read():
        message = take(reader, set())
        if message:
            found[message.partition()].append(message.value())
        return sum(map(len, found.values())) >= RECORDS

    until("all records", read)
    reader.close()
    check_order(found, RECORDS)


def group(names):
    return members(names, names.group)


def members(names, name, limit=LIMIT, **more):
    seen = set()
    first = consumer(names, name, **more)
    first.subscribe([names.data])

    def polled(count_first, count_second=None, second=None):
        take(first, seen, 0.05)
        if second:
            take(second, seen, 0.05)
        return len(first.assignment()) == count_first and (second is None or len(second.assignment()) == count_second)

    until("all partitions", lambda: polled(PARTITIONS), limit)
    second = consumer(names, name, **more)
    second.subscribe([names.data])
    until("two members to share", lambda: polled(2, 1, second) or polled(1, 2, second))
    second.close()
    until("all partitions again", lambda: polled(PARTITIONS))
    until("all records", lambda: take(first, seen) is None and seen >= expected(0, RECORDS))
    each = RECORDS // PARTITIONS
    until("all positions", lambda: take(first, seen) is None
          and all(p.offset == each for p in first.position(first.assignment())))
    first.commit(asynchronous=False)
    first.close()
    return "3, 2+1, 3 partitions"


def resume(names):
    send(names, names.data, range(RECORDS, RECORDS + MORE), "none")
    seen = set()
    reader = consumer(names, names.group)
    reader.subscribe([names.data])
    until("the records after the commit", lambda: take(reader, seen) is None and len(seen) >= MORE)
    reader.commit(asynchronous=False)
    reader.close()
    assert seen == expected(RECORDS, MORE), f"{len(seen)} records, not those after the commit"


def topics(names):
    results(admin(names).create_topics([NewTopic(names.admin, 1, 3)]))
    until("the topic in the list", lambda: names.admin in admin(names).list_topics(timeout=LIMIT).topics)
    until("a leader", lambda: described(names, names.admin))


def configs(names):
    entry = ConfigEntry("retention.ms", RETENTION, incremental_operation=AlterConfigOpType.SET)
    results(admin(names).incremental_alter_configs([ConfigResource(ResourceType.TOPIC, names.admin, incremental_configs=[entry])]))
    resource = ConfigResource(ResourceType.TOPIC, names.admin)
    until("the config", lambda: results(admin(names).describe_configs([resource]))[resource]["retention.ms"].value == RETENTION)


def partitions(names):
    results(admin(names).create_partitions([NewPartitions(names.admin, 4)]))
    until("four partitions", lambda: len(described(names, names.admin).partitions) == 4)


def delete_records(names):
    send(names, names.admin, range(20), "none", 0)
    results(admin(names).delete_records([TopicPartition(names.admin, 0, 5)]))
    place = TopicPartition(names.admin, 0)
    earliest = results(admin(names).list_offsets({place: OffsetSpec.earliest()}))[place].offset
    assert earliest == 5, f"starts at {earliest}"


def delete_topic(names):
    results(admin(names).create_topics([NewTopic(names.gone, 1, 3)]))
    until("the topic", lambda: names.gone in admin(names).list_topics(timeout=LIMIT).topics)
    results(admin(names).delete_topics([names.gone]))
    until("its end", lambda: names.gone not in admin(names).list_topics(timeout=LIMIT).topics)


def groups(names):
    listed = admin(names).list_consumer_groups().result(LIMIT)
    assert not listed.errors, listed.errors
    assert names.group in [g.group_id for g in listed.valid], "not in the list"
    found = results(admin(names).describe_consumer_groups([names.group]))[names.group]
    return found.state.name.lower()


def transactions(names):
    producer = Producer({"bootstrap.servers": names.bootstrap, "transactional.id": names.transaction})
    try:
        producer.init_transactions(15)
    except KafkaException as error:
        refuse(error)
    producer.begin_transaction()
    producer.produce(names.admin, b"in a transaction", partition=1)
    producer.commit_transaction(15)


def refuse(error):
    """A time-out is no word of the broker's."""
    if error.args[0].code() in (KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN):
        raise error
    raise Refused(str(error.args[0])) from error


def kip848(names):
    try:
        return members(names, names.group + "-848", 15, **{"group.protocol": "consumer"})
    except KafkaException as error:
        refuse(error)


run({
    "create": create, "produce": produce, "assign": assign, "group": group, "resume": resume, "topics": topics, "configs": configs,
    "partitions": partitions, "delete-records": delete_records, "delete-topic": delete_topic, "groups": groups,
    "transactions": transactions, "kip848": kip848,
})
