"""aiokafka in the matrix of clients; `contract.py` has the frame."""

import asyncio
import time

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, KafkaTimeoutError, for_code

from contract import LIMIT, MORE, PARTITIONS, RECORDS, RETENTION, Refused, check_order, expected, record, run


async def until(what, condition):
    end = time.monotonic() + LIMIT
    while not (found := await condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {LIMIT} s for {what}")
        await asyncio.sleep(0.02)
    return found


def check(code):
    if code:
        raise for_code(code)()


class Admin:
    """An admin client for one step."""

    def __init__(self, names):
        self.client = AIOKafkaAdminClient(bootstrap_servers=names.bootstrap)

    async def __aenter__(self):
        await self.client.start()
        return self.client

    async def __aexit__(self, *_):
        await self.client.close()


async def consumer(names, group):
    reader = AIOKafkaConsumer(bootstrap_servers=names.bootstrap, group_id=group, auto_offset_reset="earliest",
                              enable_auto_commit=False, heartbeat_interval_ms=500, metadata_max_age_ms=2000)
    await reader.start()
    return reader


async def send(names, topic, numbers, codec, partition=None):
    producer = AIOKafkaProducer(bootstrap_servers=names.bootstrap, acks="all", enable_idempotence=True, compression_type=codec)
    await producer.start()
    try:
        sent = []
        for number in numbers:
            key, value, own = record(number)
            sent.append(await producer.send(topic, value, key, own if partition is None else partition))
        await asyncio.wait_for(asyncio.gather(*sent), LIMIT)
    finally:
        await producer.stop()


async def take(reader, seen):
    """One poll; gives how many records it brought."""
    count = 0
    for records in (await reader.getmany(timeout_ms=50)).values():
        seen.update(r.value for r in records)
        count += len(records)
    return count


async def described(client, name):
    topic = (await client.describe_topics([name]))[0]
    ready = not topic["error_code"] and all(p["leader"] >= 0 for p in topic["partitions"])
    return topic if ready else None


async def make(client, name, partitions):
    answer = await client.create_topics([NewTopic(name, partitions, 3)])
    for error in answer.topic_errors:
        check(error[1])


async def create(names):
    async with Admin(names) as client:
        await make(client, names.data, PARTITIONS)
        topic = await until("all leaders", lambda: described(client, names.data))
    assert [len(p["replicas"]) for p in topic["partitions"]] == [3] * PARTITIONS, "replicas"
    return f"aiokafka {aiokafka.__version__}"


async def produce(names):
    codecs = [None, "gzip", "snappy", "lz4", "zstd"]
    part = RECORDS // len(codecs)
    for index, codec in enumerate(codecs):
        await send(names, names.data, range(index * part, (index + 1) * part), codec)
    return " ".join(codec or "none" for codec in codecs)


async def assign(names):
    reader = await consumer(names, None)
    places = [TopicPartition(names.data, p) for p in range(PARTITIONS)]
    reader.assign(places)
    await reader.seek_to_beginning(*places)
    found = {p: [] for p in range(PARTITIONS)}

    async def read():
        for place, records in (await reader.getmany(timeout_ms=100)).items():
            found[place.partition].extend(r.value for r in records)
        return sum(map(len, found.values())) >= RECORDS

    await until("all records", read)
    await reader.stop()
    check_order(found, RECORDS)


async def group(names):
    seen = set()
    first = await consumer(names, names.group)
    first.subscribe([names.data])

    async def polled(shares, *readers):
        for reader in readers:
            await take(reader, seen)
        return sorted(len(reader.assignment()) for reader in readers) == shares

    await until("all partitions", lambda: polled([PARTITIONS], first))
    second = await consumer(names, names.group)
    second.subscribe([names.data])
    await until("two members to share", lambda: polled([1, 2], first, second))
    await second.stop()
    await until("all partitions again", lambda: polled([PARTITIONS], first))
    each = RECORDS // PARTITIONS

    async def at_the_end():
        await take(first, seen)
        return all([await first.position(p) == each for p in first.assignment()])

    await until("all positions", at_the_end)
    assert seen == expected(0, RECORDS), f"{len(seen)} records"
    await first.commit()
    await first.stop()
    return "3, 2+1, 3 partitions"


async def resume(names):
    await send(names, names.data, range(RECORDS, RECORDS + MORE), None)
    seen = set()
    reader = await consumer(names, names.group)
    reader.subscribe([names.data])

    async def read():
        return await take(reader, seen) == 0 and len(seen) >= MORE

    await until("the records after the commit", read)
    await reader.commit()
    await reader.stop()
    assert seen == expected(RECORDS, MORE), f"{len(seen)} records, not those after the commit"


async def listed(client, name):
    return name in await client.list_topics()


async def topics(names):
    async with Admin(names) as client:
        await make(client, names.admin, 1)
        await until("the topic in the list", lambda: listed(client, names.admin))
        await until("a leader", lambda: described(client, names.admin))


async def configs(names):
    async with Admin(names) as client:
        answers = await client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, names.admin, {"retention.ms": RETENTION})])
        for answer in answers:
            for resource in answer.resources:
                check(resource[0])

        async def value():
            answers = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, names.admin)])
            found = {entry[0]: entry[1] for answer in answers for resource in answer.resources for entry in resource[4]}
            return found.get("retention.ms") == RETENTION

        await until("the config", value)


async def partitions(names):
    async with Admin(names) as client:
        answer = await client.create_partitions({names.admin: NewPartitions(4)})
        for error in answer.topic_errors:
            check(error[1])

        async def four():
            topic = await described(client, names.admin)
            return topic and len(topic["partitions"]) == 4

        await until("four partitions", four)


async def delete_records(names):
    await send(names, names.admin, range(20), None, 0)
    place = TopicPartition(names.admin, 0)
    async with Admin(names) as client:
        await client.delete_records({place: RecordsToDelete(5)})
    reader = await consumer(names, None)
    earliest = (await reader.beginning_offsets([place]))[place]
    await reader.stop()
    assert earliest == 5, f"starts at {earliest}"


async def delete_topic(names):
    async with Admin(names) as client:
        await make(client, names.gone, 1)
        await until("the topic", lambda: listed(client, names.gone))
        answer = await client.delete_topics([names.gone])
        for error in answer.topic_error_codes:
            check(error[1])

        async def ended():
            return not await listed(client, names.gone)

        await until("its end", ended)


async def groups(names):
    async with Admin(names) as client:
        assert names.group in [g[0] for g in await client.list_consumer_groups()], "not in the list"
        answers = await client.describe_consumer_groups([names.group])
        return answers[0].groups[0][2].lower()


async def transactions(names):
    producer = AIOKafkaProducer(bootstrap_servers=names.bootstrap, transactional_id=names.transaction)
    try:
        await asyncio.wait_for(producer.start(), 15)
        async with producer.transaction():
            await producer.send(names.admin, b"in a transaction", partition=1)
    except KafkaTimeoutError:
        raise  # no word of the broker's
    except KafkaError as error:
        raise Refused(f"{type(error).__name__}: {error}") from error
    finally:
        await asyncio.wait([asyncio.ensure_future(producer.stop())], timeout=2)


def step(function):
    return lambda names: asyncio.run(function(names))


run({
    "create": step(create), "produce": step(produce), "assign": step(assign), "group": step(group), "resume": step(resume),
    "topics": step(topics), "configs": step(configs), "partitions": step(partitions), "delete-records": step(delete_records),
    "delete-topic": step(delete_topic), "groups": step(groups), "transactions": step(transactions),
})
