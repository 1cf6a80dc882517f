"""Reads the few instructions that an image of one copied folder needs from a Dockerfile. Refuses all others."""

import json
import shlex
from dataclasses import dataclass, field


class Refused(Exception):
    """A Dockerfile that says more than this program can do."""


@dataclass
class Dockerfile:
    """folder: what COPY takes to the root, relative to the context; the rest as in an image's configuration."""

    folder: str = ""
    user: str = ""
    working_directory: str = ""
    environment: list = field(default_factory=list)
    labels: dict = field(default_factory=dict)
    entrypoint: list = field(default_factory=list)


def parse(text):
    found = Dockerfile()
    for instruction, value in _instructions(text):
        if instruction == "FROM" and value == "scratch":
            continue
        if instruction == "COPY" and not found.folder and len(value.split()) == 2 and value.split()[1] == "/":
            found.folder = value.split()[0].rstrip("/")
        elif instruction == "USER":
            found.user = value
        elif instruction == "WORKDIR":
            found.working_directory = value
        elif instruction == "ENV":
            found.environment += shlex.split(value)
        elif instruction == "LABEL":
            found.labels.update(pair.split("=", 1) for pair in shlex.split(value))
        elif instruction == "ENTRYPOINT":
            found.entrypoint = json.loads(value)
        else:
            raise Refused(f"cannot do: {instruction} {value}")
    if not found.folder:
        raise Refused("nothing is copied to /")
    return found


def _instructions(text):
    """(name, value) of each instruction; a line that ends in a backslash goes on in the next."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, value = line.partition(" ")
        yield name.upper(), value.strip()
