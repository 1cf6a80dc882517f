"""Sends a file of `key TAB value` lines with kafka-python and acks=all, and fails if one was not acknowledged."""

import argparse

from kafka import KafkaProducer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--file", required=True)
    arguments = parser.parse_args()

    codec = None if arguments.codec == "none" else arguments.codec
    producer = KafkaProducer(bootstrap_servers=arguments.bootstrap.split(","), acks="all", linger_ms=20, compression_type=codec)
    failures = []
    with open(arguments.file, "rb") as lines:
        for line in lines:
            key, value = line.rstrip(b"\n").split(b"\t", 1)
            producer.send(arguments.topic, key=key, value=value).add_errback(failures.append)
    producer.flush(timeout=120)
    producer.close()
    if failures:
        raise SystemExit(f"{len(failures)} lines were not acknowledged, the first because of {failures[0]!r}")


main()
