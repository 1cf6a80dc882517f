"""The machines' cgroups: below the cgroup that `up` ran in, in every hierarchy (cgroup v1 and hybrid hosts only).

A machine has a cgroup namespace and mounts the hierarchies anew, so its kubelet sees a root of its own and needs no option for it.
"""

import os
import signal
import time
from pathlib import Path

from .settings import CLUSTER
from .system import Failure, read, wait_until


def hierarchies():
    """{name as in /proc/self/cgroup: (mount point, controllers)}; the unified one has the name "" and None."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ")
        point = left.split()[4]
        filesystem, _, options = right.split()[:3]
        if filesystem == "cgroup":
            skipped = ("rw", "ro", "xattr", "noprefix", "clone_children")
            controllers = [o for o in options.split(",") if o not in skipped and not o.startswith("release_agent")]
            found[",".join(controllers)] = (point, controllers)
        elif filesystem == "cgroup2":
            found[""] = (point, None)
    return found


def own():
    """{hierarchy: this process's cgroup in it}, to be kept in the state: a later command may stand in another."""
    known = hierarchies()
    places = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, name, path = line.split(":", 2)
        if name in known:
            places[name] = path
    return places


def cluster_folders(bases):
    """{hierarchy: the cluster's folder}, for bases as `own` gave them."""
    known = hierarchies()
    return {name: Path(known[name][0]) / base.strip("/") / CLUSTER for name, base in bases.items() if name in known}


def machine_folders(bases, machine):
    return {name: folder / machine for name, folder in cluster_folders(bases).items()}


def enter(bases, machine):
    """Moves this process into the machine's cgroups, made where they are missing."""
    for name, folder in machine_folders(bases, machine).items():
        for made in (folder.parent, folder):
            made.mkdir(exist_ok=True)
            if name == "cpuset":
                # A new one is empty and takes no process before it has its parent's processors.
                for file in ("cpuset.cpus", "cpuset.mems"):
                    if not read(made / file):
                        (made / file).write_text(read(made.parent / file))
        (folder / "cgroup.procs").write_text(str(os.getpid()))


def freeze(bases, machine, frozen):
    """Stops all processes of a machine, or lets them go on."""
    folder = machine_folders(bases, machine).get("freezer")
    if folder is None:
        raise Failure("this kernel has no freezer hierarchy, so no node can be frozen")
    word = "FROZEN" if frozen else "THAWED"
    state = folder / "freezer.state"
    if state.exists():
        state.write_text(word)
        wait_until(f"{machine} to be {word}", 10, lambda: read(state) == word, 0.02)


def kill(bases, machine):
    """Kills every process in the machine's cgroups. Also finds an init whose `up` was cut short before it noted the pid."""
    for folder in machine_folders(bases, machine).values():
        for file in folder.rglob("cgroup.procs"):
            for pid in read(file).split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass


def remove(folder, seconds=20):
    """Removes a tree of cgroups once its last process has gone."""
    end = time.monotonic() + seconds
    while folder.exists():
        try:
            for inner in sorted((p for p in folder.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts)):
                inner.rmdir()
            folder.rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            if time.monotonic() > end:
                users = " ".join(read(file) for file in folder.rglob("cgroup.procs")).split()
                raise Failure(f"cgroup {folder} is still in use by the processes {users}")
            time.sleep(0.02)
