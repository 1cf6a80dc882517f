"""What every Python client of the matrix shares: the arguments, the steps' names and numbers, and one JSON line for each step.

`../README.md` says what each step does. A client gives `run` a function for each step that its library can do; a step that it has
no function for is told as absent. A function returns what to say, or raises; `Refused` is the broker's clear word that it does not
do this.
"""

import argparse
import json
import sys
import time
import traceback

PARTITIONS = 3
RECORDS = 300
MORE = 30
RETENTION = "7654321"
# For everything that a step waits for.
LIMIT = 45


class Refused(Exception):
    """The broker said that it does not do this."""


class Names:
    """Topics and groups of one run."""

    def __init__(self, bootstrap, prefix):
        self.bootstrap = bootstrap
        self.data = prefix + "-data"
        self.admin = prefix + "-admin"
        self.gone = prefix + "-gone"
        self.group = prefix + "-group"
        self.transaction = prefix + "-transaction"


def record(number):
    """Key, value and partition of a record."""
    return b"k%d" % (number % 30), b"v%d" % number, number % PARTITIONS


def expected(first, count):
    return {b"v%d" % number for number in range(first, first + count)}


def check_order(by_partition, count):
    """Every record once, and in the order of its partition."""
    for partition, values in by_partition.items():
        wanted = [b"v%d" % number for number in range(count) if number % PARTITIONS == partition]
        if values != wanted:
            raise AssertionError(f"partition {partition}: {len(values)} records, wanted {len(wanted)} in order")
    if sum(map(len, by_partition.values())) != count:
        raise AssertionError("a partition is missing")


def until(what, condition, limit=LIMIT):
    """Calls `condition` until it gives something, for `limit` seconds."""
    end = time.monotonic() + limit
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise TimeoutError(f"waited {limit} s for {what}")
        time.sleep(0.02)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--steps", required=True, help="names, separated by commas")
    parsed = parser.parse_args()
    return Names(parsed.bootstrap, parsed.prefix), parsed.steps.split(",")


def tell(step, ok, detail, **more):
    print(json.dumps({"step": step, "ok": ok, "detail": detail, **more}), flush=True)


def run(steps):
    """Runs the steps that were asked for, in order, and ends the program: with 1 if one of them failed."""
    names, wanted = arguments()
    failed = False
    for step in wanted:
        function = steps.get(step)
        if function is None:
            tell(step, False, "the library has no call for it", absent=True)
            continue
        try:
            tell(step, True, function(names) or "")
        except Refused as refusal:
            tell(step, False, str(refusal), refused=True)
        except Exception as error:
            failed = True
            traceback.print_exc()
            tell(step, False, f"{type(error).__name__}: {error}")
    sys.exit(1 if failed else 0)
