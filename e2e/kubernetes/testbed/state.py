"""What `up` notes down before it changes anything, so that `down` can undo it whenever `up` was cut short."""

import json
from dataclasses import asdict, dataclass, field

from .settings import WORK
from .system import as_json, read, write_whole

FILE = WORK / "state.json"


@dataclass
class State:
    """cgroups: {hierarchy: cgroup that the bed nests below}; kernel: {file under /proc/sys: its value before};
    folders: those that `up` made on the host; api_port: where the host reaches the API server, 0 before that is known."""

    cgroups: dict
    kernel: dict
    folders: list = field(default_factory=list)
    api_port: int = 0

    def save(self):
        WORK.mkdir(parents=True, exist_ok=True)
        write_whole(FILE, as_json(asdict(self)))


def load():
    """The state of this bed, or None where nothing is up."""
    text = read(FILE)
    return State(**json.loads(text)) if text else None
