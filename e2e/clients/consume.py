"""Reads a topic with kafka-python and prints partition, offset, key and value, separated by tabs.

Without --group it assigns every partition from the start and ends after --records; with --group it goes on until it is killed
and commits only what it has written out, so that a kill never loses a record that counts as read.
"""

import argparse
import sys

from kafka import KafkaConsumer, TopicPartition


def write(record):
    sys.stdout.buffer.write(b"%d\t%d\t%s\t%s\n" % (record.partition, record.offset, record.key or b"", record.value or b""))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group")
    parser.add_argument("--records", type=int, default=0)
    arguments = parser.parse_args()

    consumer = KafkaConsumer(
        bootstrap_servers=arguments.bootstrap.split(","),
        group_id=arguments.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
        # The checksum in pure Python costs more than all the rest; the other clients check it.
        check_crcs=arguments.group is None and arguments.records <= 50_000,
    )
    if arguments.group:
        consumer.subscribe([arguments.topic])
    else:
        partitions = [TopicPartition(arguments.topic, p) for p in sorted(consumer.partitions_for_topic(arguments.topic) or [])]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)

    read = 0
    while arguments.group or read < arguments.records:
        for records in consumer.poll(timeout_ms=500, max_records=5000).values():
            for record in records:
                write(record)
                read += 1
        sys.stdout.buffer.flush()
        if arguments.group and read:
            try:
                consumer.commit()
            except Exception as error:  # a rebalance under way: the next owner reads these again
                print(f"commit: {error}", file=sys.stderr)
    consumer.close()


main()
