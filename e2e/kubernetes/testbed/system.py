"""The kernel's calls and small file and process helpers that Python's library lacks or makes long."""

import ctypes
import fcntl
import json
import os
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x00020000, 0x02000000, 0x04000000
CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = 0x08000000, 0x20000000, 0x40000000
NAMESPACES = {"mnt": CLONE_NEWNS, "cgroup": CLONE_NEWCGROUP, "uts": CLONE_NEWUTS, "ipc": CLONE_NEWIPC, "pid": CLONE_NEWPID, "net": CLONE_NEWNET}
MS_BIND, MS_REC, MS_PRIVATE, MS_SHARED = 1 << 12, 1 << 14, 1 << 18, 1 << 20
PR_SET_PDEATHSIG = 1


class Failure(Exception):
    """What the person at the terminal is told, in a sentence."""


def check_call(what, result):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source, target, filesystem=None, flags=0, data=None):
    encode = lambda text: None if text is None else str(text).encode()
    result = libc.mount(encode(source), encode(target), encode(filesystem), ctypes.c_ulong(flags), encode(data))
    check_call(f"mount {filesystem or source} on {target}", result)


def unshare(names):
    flags = 0
    for name in names:
        flags |= NAMESPACES[name]
    check_call("unshare", libc.unshare(flags))


def enter_namespaces(pid, names):
    """Moves this thread into namespaces of a process. All are opened first: after the change of /proc they could not be."""
    files = [(name, os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)) for name in names]
    for name, file in files:
        check_call(f"setns {name}", libc.setns(file, NAMESPACES[name]))
        os.close(file)


def call_in_network(pid, function):
    """The result of a function that is run by a thread inside a process's network namespace."""
    outcome = {}

    def work():
        try:
            enter_namespaces(pid, ["net"])
            outcome["result"] = function()
        except Exception as error:  # it is raised again in the thread that waits
            outcome["error"] = error

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]


def set_death_signal(signal_number):
    """Sends this process a signal when its parent ends, however that ends."""
    check_call("prctl", libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number), 0, 0, 0))


def run(command, text=None, check=True):
    """Runs a command to its end and returns what it wrote; a failure carries all of that."""
    command = [str(word) for word in command]
    done = subprocess.run(command, input=text, text=True, capture_output=True)
    if check and done.returncode:
        raise Failure(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}".strip())
    return done.stdout


def wait_until(what, seconds, test, pause=0.1):
    """Calls a test until it returns something true, and returns that. Refused connections and the like count as not yet."""
    end = time.monotonic() + seconds
    while True:
        reason = None
        try:
            result = test()
        except (OSError, Failure, HTTPException, ValueError) as error:
            result, reason = None, error
        if result:
            return result
        if time.monotonic() > end:
            raise Failure(f"waited {seconds} s in vain for {what}" + (f": {reason}" if reason else ""))
        time.sleep(pause)


def read(path, default=""):
    """A file's text without the white space around it, or the default where it cannot be read."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return default


def write_if_changed(path, text):
    """Writes only what differs: kube-proxy ends itself when its configuration is written again."""
    if read(path, None) != text.strip():
        path.write_text(text)


def write_whole(path, text):
    """A file that is never seen half-written."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(text)
    beside.replace(path)


def as_json(value):
    return json.dumps(value, indent=1) + "\n"


def start_time(pid):
    """When a process was started, in the kernel's ticks: with the pid, its identity. None once it is gone or a zombie."""
    status = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return status[19] if status and status[0] != "Z" else None


@contextmanager
def locked(directory):
    """Holds a folder's lock, so that two commands do not change one cluster at once."""
    directory.mkdir(parents=True, exist_ok=True)
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another command of this bed to end", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


@contextmanager
def short_path(path):
    """The path by way of an open folder: a socket's address holds 107 bytes, which a deep clone exceeds."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def connected(path, timeout=30):
    """A stream connected to a unix socket at a path of any length."""
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(timeout)
    try:
        with short_path(path) as short:
            stream.connect(short)
    except OSError:
        stream.close()
        raise
    return stream
