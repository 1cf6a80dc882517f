"""A machine's init: pid 1 of its pid namespace. Sets up the machine's mounts, runs its processes again when they end, reaps orphans.

Takes one JSON request a connection on the machine's control socket: {"operation": "list"}, or {"operation": "start", "process", "argv",
"inherited"}. Answers {process: {"pid", "restarts", "rss_mib", "cpu_seconds"}}, or {"error"}.
"""

import ctypes
import json
import os
import re
import resource
import selectors
import signal
import socket
import subprocess
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from . import cgroups, machine
from .settings import CONFIG, CONTROL_PLANE, LOGS
from .system import MS_BIND, MS_PRIVATE, MS_REC, MS_SHARED, check_call, libc, mount, read, short_path

RESTART_SECONDS = 1

# Paths that a kubelet or a CNI plugin has built in; each node sees its own folder there.
NODE_FOLDERS = {"/var/lib/kubelet": "kubelet", "/var/lib/cni": "cni-state", "/var/log/pods": "pod-logs", "/var/log/containers": "container-logs"}

# A kubelet sets these, and they are the whole host's: each node is shown a file that has the wanted value already.
SHOWN_SETTINGS = {
    "vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000, "kernel/keys/root_maxbytes": 25000000,
}


@dataclass
class Process:
    name: str
    argv: list
    inherited: list
    pid: int | None = None
    restart_at: float | None = None
    restarts: int = field(default=0)


def run(name):
    """Never returns: a machine is only ever unplugged."""
    encoded = name.encode()
    check_call("sethostname", libc.sethostname(encoded, ctypes.c_size_t(len(encoded))))
    _mount_all(name)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if name == CONTROL_PLANE:
        # Frames between the nodes cross cp's bridge; cp's own packet filter has no say in them.
        for file in Path("/proc/sys/net/bridge").glob("bridge-nf-call-*"):
            file.write_text("0")
    else:
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    Supervisor(name).serve()


def _mount_all(name):
    hierarchies = cgroups.hierarchies()
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("none", "/", None, MS_REC | MS_SHARED)  # among this machine's containers
    mount("proc", "/proc", "proc")
    mount("sysfs", "/sys", "sysfs")
    mount("cgroup", "/sys/fs/cgroup", "tmpfs", 0, "mode=755")
    for point, controllers in hierarchies.values():
        os.makedirs(point, exist_ok=True)
        if controllers is None:
            mount("cgroup2", point, "cgroup2")
        else:
            options = ",".join(controllers)
            mount("cgroup", point, "cgroup", 0, f"none,{options}" if options.startswith("name=") else options)
    mount("tmpfs", "/run", "tmpfs", 0, "mode=755")
    mount("tmpfs", "/dev/shm", "tmpfs")
    resolver = Path(os.path.realpath("/etc/resolv.conf"))
    if resolver.is_relative_to("/run"):  # a link into the /run that has just been covered
        resolver.parent.mkdir(parents=True, exist_ok=True)
        resolver.touch()
    mount(CONFIG / "resolv.conf", resolver, None, MS_BIND)
    if name != CONTROL_PLANE:
        _mount_node(machine.folder(name))


def _mount_node(folder):
    for point, inner in NODE_FOLDERS.items():
        (folder / inner).mkdir(exist_ok=True)
        mount(folder / inner, point, None, MS_BIND)
    (folder / "settings").mkdir(exist_ok=True)
    for setting, value in SHOWN_SETTINGS.items():
        file = folder / "settings" / setting.replace("/", ".")
        file.write_text(f"{value}\n")
        if os.path.exists(f"/proc/sys/{setting}"):
            mount(file, f"/proc/sys/{setting}", None, MS_BIND)


class Supervisor:
    def __init__(self, name):
        self.name = name
        self.processes = {}

    def serve(self):
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        listener = socket.socket(socket.AF_UNIX)
        with short_path(machine.folder(self.name) / machine.CONTROL_SOCKET) as path:
            listener.bind(path)
        listener.listen(16)
        selector = selectors.DefaultSelector()
        selector.register(wake_read, selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select(self._seconds_to_next_restart()):
                if key.fileobj is listener:
                    self._answer(listener)
                else:
                    os.read(wake_read, 512)
            self._reap()
            self._restart_due()

    def _seconds_to_next_restart(self):
        due = [process.restart_at for process in self.processes.values() if process.restart_at]
        return max(0, min(due) - time.monotonic()) if due else None

    def _reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for process in self.processes.values():
                if process.pid == pid:
                    print(time.strftime("%T"), process.name, "ended with wait status", status, flush=True)
                    process.pid = None
                    process.restart_at = time.monotonic() + RESTART_SECONDS

    def _restart_due(self):
        for process in self.processes.values():
            if process.restart_at and process.restart_at <= time.monotonic():
                process.restarts += 1
                self._launch(process)

    def _launch(self, process):
        process.restart_at = None
        with open(LOGS / f"{self.name}.{process.name}.log", "ab") as log:
            log.write(f"--- {time.strftime('%T')} {' '.join(process.argv)}\n".encode())
            log.flush()
            child = subprocess.Popen(process.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                                     start_new_session=True, pass_fds=process.inherited)
        child.returncode = 0  # pid 1 reaps all, so Popen must not wait for it
        process.pid = child.pid

    def _answer(self, listener):
        stream, _ = listener.accept()
        with stream:
            stream.settimeout(5)
            try:
                answer = self._handle(**json.loads(stream.makefile().readline()))
            except Exception as error:  # whatever it is, pid 1 must live on
                traceback.print_exc()
                answer = {"error": repr(error)}
            try:
                stream.sendall((json.dumps(answer) + "\n").encode())
            except OSError:
                pass  # the asker has gone

    def _handle(self, operation, process=None, argv=(), inherited=()):
        if operation == "start":
            if process not in self.processes:
                self.processes[process] = Process(process, list(argv), list(inherited))
                self._launch(self.processes[process])
        elif operation != "list":
            raise ValueError(f"unknown operation {operation}")
        return {name: self._described(each) for name, each in self.processes.items()}

    def _described(self, process):
        described = {"pid": process.pid, "restarts": process.restarts}
        status = read(f"/proc/{process.pid}/stat").rpartition(")")[2].split()
        if status:
            resident = re.search(r"VmRSS:\s+(\d+)", read(f"/proc/{process.pid}/status"))
            described["rss_mib"] = int(resident.group(1)) // 1024 if resident else 0
            described["cpu_seconds"] = (int(status[11]) + int(status[12])) / os.sysconf("SC_CLK_TCK")
        return described
