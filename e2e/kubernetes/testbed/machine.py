"""One machine: its init process in namespaces of its own, and the way to command it."""

import json
import os
import shutil
import signal
import sys
import traceback

from . import cgroups, state
from .settings import BED, BIN, CNI_BIN, CONTROL_PLANE, LOGS, MACHINES, NODES_MAX, WORK, node_name, node_number
from .system import Failure, connected, enter_namespaces, read, run, set_death_signal, start_time, unshare, wait_until, write_whole

# "booted" is added once its network and first processes are there: a machine without it was cut short, and is booted anew.
PID_FILE = "pid"
CONTROL_SOCKET = "control"


def folder(name):
    return MACHINES / name


def known():
    """The names of all machines that have ever been booted since `up`, the control plane first."""
    names = [CONTROL_PLANE] + [node_name(number) for number in range(1, NODES_MAX + 1)]
    return [name for name in names if folder(name).exists()]


def nodes():
    return [name for name in known() if name != CONTROL_PLANE]


def require_node(name):
    if node_number(name) is None or not folder(name).exists():
        raise Failure(f"no node is called {name}; there are: {' '.join(nodes()) or 'none, nothing is up'}")


def init_pid(name):
    """The host's pid of a machine's init, or None where the machine is off."""
    noted = read(folder(name) / PID_FILE).split()
    return int(noted[0]) if noted and start_time(noted[0]) == noted[1] else None


def running_pid(name):
    pid = init_pid(name)
    if pid is None:
        raise Failure(f"{name} is not running")
    return pid


def is_booted(name):
    return init_pid(name) is not None and read(folder(name) / PID_FILE).endswith("booted")


def mark_booted(name):
    write_whole(folder(name) / PID_FILE, read(folder(name) / PID_FILE) + " booted")


def boot(name, inherited=()):
    """Starts a machine's init. `inherited` are file descriptors that its processes can be given later."""
    bases = state.load().cgroups
    folder(name).mkdir(parents=True, exist_ok=True)
    (folder(name) / CONTROL_SOCKET).unlink(missing_ok=True)
    LOGS.mkdir(exist_ok=True)
    environment = _environment()
    pid_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            # The bed's lock goes over to this child and is let go by the exec: no other command sees a machine half-made.
            os.setsid()
            cgroups.enter(bases, name)
            unshare(["mnt", "cgroup", "uts", "ipc", "pid", "net"])
            init = os.fork()
            if init:
                os.write(write_end, str(init).encode())
                os._exit(0)
            _redirect(name)
            _close_all_but(inherited)
            os.execve(sys.executable, [sys.executable, str(BED), "_init", name], environment)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(write_end)
    os.waitpid(child, 0)
    pid = os.read(pid_end, 32).decode()
    os.close(pid_end)
    if not pid:
        raise Failure(f"{name} did not start; the reason stands above")
    write_whole(folder(name) / PID_FILE, f"{pid} {start_time(pid)}")
    wait_until(f"{name}'s init (see {LOGS}/{name}.init.log)", 20, lambda: command(name, operation="list") is not None, 0.02)


def _environment():
    """Nothing of the caller's but this: a proxy set there would swallow what the machines say to each other."""
    return {"PATH": os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
            "KUBE_WORK": str(WORK), "KUBE_BIN": str(BIN), "KUBE_CNI_BIN": CNI_BIN}


def _redirect(name):
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(LOGS / f"{name}.init.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)


def _close_all_but(kept):
    """What the caller had open, a lock for one, would else be held for as long as the machine runs."""
    below = 3
    for file in sorted(kept):
        os.closerange(below, file)
        os.set_inheritable(file, True)
        below = file + 1
    os.closerange(below, os.sysconf("SC_OPEN_MAX"))


def unplug(name):
    """Ends a machine at once, as a power cut would. Its disks stay; a machine that is off already stays off."""
    bases = state.load().cgroups
    try:
        cgroups.freeze(bases, name, False)  # a frozen process does not even die
    except Failure:
        pass
    pid = init_pid(name)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
    cgroups.kill(bases, name)
    if pid is not None:
        wait_until(f"{name} to end", 20, lambda: start_time(pid) is None, 0.02)
    for cgroup in cgroups.machine_folders(bases, name).values():
        cgroups.remove(cgroup)
    (folder(name) / PID_FILE).unlink(missing_ok=True)


def discard(name):
    """Unplugs a machine and throws its disks away."""
    unplug(name)
    shutil.rmtree(folder(name), ignore_errors=True)


def command(name, **request):
    """What the machine's init answers to one request (see `supervisor`)."""
    with connected(folder(name) / CONTROL_SOCKET) as stream:
        stream.sendall((json.dumps(request) + "\n").encode())
        line = stream.makefile().readline()
    answer = json.loads(line) if line else {"error": "its init gave no answer"}
    if "error" in answer:
        raise Failure(f"{name}: {answer['error']}")
    return answer


def start(name, process, argv, inherited=()):
    """Has the machine's init run a process, again whenever it ends. One of that name that runs already is left alone."""
    command(name, operation="start", process=process, argv=[str(word) for word in argv], inherited=list(inherited))


def run_in_network(name, argv, text=None, check=True):
    """Runs a command of the host that sees the machine's network and nothing else of it."""
    return run(["nsenter", f"--net=/proc/{running_pid(name)}/ns/net", *argv], text=text, check=check)


def run_inside(name, argv):
    """Runs a command that sees the machine's files, processes and network."""
    return run(["nsenter", "-t", running_pid(name), "-m", "-p", "-n", "--", *argv])


def become(name, argv):
    """Ends this program with a command inside the machine. The command dies with this process, and gets its signals."""
    pid = running_pid(name)
    here = os.getcwd()
    enter_namespaces(pid, ["uts", "ipc", "net", "pid", "mnt"])
    try:
        os.chdir(here)
    except OSError:
        os.chdir("/")
    child = os.fork()
    if child == 0:
        try:
            set_death_signal(signal.SIGKILL)
            os.execvp(argv[0], argv)
        except OSError as error:
            os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(127)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: os.kill(child, received))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.exit(code if code >= 0 else 128 - code)
