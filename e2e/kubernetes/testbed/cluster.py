"""The cluster as a whole: up, down, its status, and what is done to its nodes."""

import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import api, cgroups, certificates, control_plane, images, machine, network, node, objects, requirements, state
from .settings import (CONFIG, CONTROL_PLANE, CONTROL_PLANE_ADDRESS, IMAGES, KEYS, KUBECONFIG, LOGS, MACHINES, NODES_MAX, WORK, address, node_name,
                       pod_range)
from .supervisor import NODE_FOLDERS
from .system import Failure, call_in_network, locked, read, run, wait_until, write_if_changed

# Every kubelet, containerd and kube-proxy needs some, and the limit is the whole host's. `down` puts it back.
KERNEL_SETTINGS = {"fs/inotify/max_user_instances": 8192}
# A machine that does other work meanwhile takes long over some of the steps.
PATIENCE = 120


class Stopwatch:
    """Says how long it has taken to come so far."""

    def __init__(self):
        self.start = time.monotonic()

    def say(self, what):
        print(f"{time.monotonic() - self.start:6.1f} s  {what}", flush=True)


def up(node_count):
    """Starts a cluster, or what is missing of it. Returns once its nodes are Ready, DNS answers, and pods can be made."""
    requirements.check()
    if not 1 <= node_count <= NODES_MAX:
        raise Failure(f"NODES must be from 1 to {NODES_MAX}")
    watch, began = Stopwatch(), time.time()
    with locked(WORK):
        _prepare_host()
        names = sorted({node_name(number) for number in range(1, node_count + 1)} | set(machine.nodes()))
        certificates.make_all(names)
        images.make_pause_image()
        watch.say("certificates made")
        _boot_control_plane()
        fresh = [name for name in names if not machine.is_booted(name)]
        for name in fresh:
            _boot_node(name)
        watch.say("machines booted")
        _start_everything(names, watch)
        for name in names:
            wait_until(f"{name} to be Ready", PATIENCE, lambda: api.node_is_ready(name, began if name in fresh else 0))
        watch.say(f"nodes Ready: {' '.join(names)}")
        pid = machine.running_pid(CONTROL_PLANE)
        wait_until("DNS", PATIENCE, lambda: call_in_network(pid, lambda: network.resolves("kubernetes.default.svc.cluster.local")))
        wait_until("the default service account", PATIENCE, lambda: api.get("/api/v1/namespaces/default/serviceaccounts/default"))
        watch.say("DNS answers")
    print(f"export KUBECONFIG={KUBECONFIG}", flush=True)


def _prepare_host():
    """Notes what the host is like, and only then changes it."""
    noted = state.load()
    if not any(machine.init_pid(name) for name in machine.known()):
        if noted:
            # Off since this host was booted or `up` was cut short. What is left may be half-made, and is quickly made again.
            _undo(noted)
        shutil.rmtree(LOGS, ignore_errors=True)
        missing = [folder for folder in NODE_FOLDERS if not os.path.isdir(folder)]
        state.State(cgroups=cgroups.own(), kernel={name: read(f"/proc/sys/{name}") for name in KERNEL_SETTINGS}, folders=missing).save()
    for name, least in KERNEL_SETTINGS.items():
        if int(read(f"/proc/sys/{name}")) < least:
            Path(f"/proc/sys/{name}").write_text(str(least))
    for folder in NODE_FOLDERS:
        os.makedirs(folder, exist_ok=True)
    CONFIG.mkdir(parents=True, exist_ok=True)
    write_if_changed(CONFIG / "resolv.conf", f"nameserver {CONTROL_PLANE_ADDRESS}\n"
                     "search default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5 timeout:2\n")


def _boot_control_plane():
    if not machine.is_booted(CONTROL_PLANE):
        for name in machine.known():  # nodes hang on the bridge of the cp that was
            machine.discard(name)
        noted = state.load()
        with network.listen_on_host(int(os.environ.get("KUBE_API_PORT") or 0)) as listener:
            noted.api_port = listener.getsockname()[1]
            noted.save()
            certificates.write_admin_kubeconfig(noted.api_port)
            machine.boot(CONTROL_PLANE, [listener.fileno()])
            network.connect_control_plane()
            control_plane.start_api_server()
            control_plane.start_forwarder(listener)
        machine.mark_booted(CONTROL_PLANE)


def _boot_node(name):
    machine.unplug(name)
    machine.boot(name)
    network.connect_node(name)
    node.start_containerd(name)
    machine.mark_booted(name)


def _start_everything(names, watch):
    api_ready = threading.Event()

    def bring_in(name):
        _import_images(name)
        if not api_ready.wait(PATIENCE):
            raise Failure("the API server did not become ready")
        node.start_kubelet(name)
        node.start_proxy(name)

    with ThreadPoolExecutor(len(names)) as pool:
        jobs = [pool.submit(bring_in, name) for name in names]
        wait_until(f"the API server (see {LOGS}/cp.kube-apiserver.log)", PATIENCE, lambda: api.get("/readyz"))
        watch.say("API server ready")
        api_ready.set()
        control_plane.start_controllers()
        api.apply(objects.all_objects())
        control_plane.start_services()
        node.start_proxy(CONTROL_PLANE)
        for job in jobs:
            job.result()


def _import_images(name):
    wait_until(f"{name}'s containerd (see {LOGS}/{name}.containerd.log)", PATIENCE, lambda: node.containerd_answers(name), 0.05)
    images.import_all(name)


def down():
    """Ends the cluster and puts back what `up` has changed on the host. Only the logs stay, until the next `up`."""
    requirements.require_root()
    watch = Stopwatch()
    if WORK.exists():
        with locked(WORK):
            noted = state.load()
            if noted:
                _undo(noted)
    watch.say("down" + (f"; the logs are in {LOGS}" if LOGS.exists() else ""))


def _undo(noted):
    # by the count and not by the folders: an `up` may have been cut short before it made one
    for name in [node_name(number) for number in range(1, NODES_MAX + 1)] + [CONTROL_PLANE]:
        machine.unplug(name)
    for folder in cgroups.cluster_folders(noted.cgroups).values():
        cgroups.remove(folder)
    for name, value in noted.kernel.items():
        if value and read(f"/proc/sys/{name}") != value:
            Path(f"/proc/sys/{name}").write_text(value)
    for folder in noted.folders:
        try:
            os.rmdir(folder)
        except OSError:
            pass  # someone else has put something there
    for folder in (MACHINES, KEYS, CONFIG, IMAGES, WORK / "pause"):
        shutil.rmtree(folder, ignore_errors=True)
    KUBECONFIG.unlink(missing_ok=True)
    state.FILE.unlink(missing_ok=True)


def _require_up():
    requirements.require_root()
    if state.load() is None:
        raise Failure("nothing is up: start the cluster with bed.py up")


def status():
    """Prints each machine and its processes."""
    _require_up()
    for name in machine.known():
        pid = machine.init_pid(name)
        where = address(name) + ("" if name == CONTROL_PLANE else f", pods {pod_range(name)}")
        print(f"{name}: " + (f"running, {where}, init {pid}" if pid else "off"))
        if pid:
            for process, described in machine.command(name, operation="list").items():
                if described["pid"]:
                    numbers = f"{described.get('rss_mib', 0):5} MiB {described.get('cpu_seconds', 0):8.2f} s of CPU"
                else:
                    numbers = "ended, starts again in a second"
                print(f"    {process:24} {numbers}  restarts {described['restarts']}")
    print(f"export KUBECONFIG={KUBECONFIG}")


def load(archives):
    """Loads image archives into the nodes that run, and into others once they are started."""
    _require_up()
    with locked(WORK):
        images.keep(archives)
        print("loaded on", " ".join(images.import_everywhere()) or "no node, none runs")


def kill_node(name):
    """Pulls a node's plug."""
    _require_up()
    machine.require_node(name)
    watch = Stopwatch()
    with locked(WORK):
        machine.unplug(name)
    watch.say(f"{name} is off")


def start_node(name):
    """Boots a node that is off, with the disks it had. Returns once it is Ready."""
    _require_up()
    machine.require_node(name)
    watch, began = Stopwatch(), time.time()
    with locked(WORK):
        if not machine.is_booted(name):
            _boot_node(name)
        _import_images(name)
        node.start_kubelet(name)
        node.start_proxy(name)
        wait_until(f"{name} to be Ready", PATIENCE, lambda: api.node_is_ready(name, began))
    watch.say(f"{name} is Ready")


def freeze_node(name, frozen):
    """Stops all processes of a node, as a stalled virtual machine, or lets them go on."""
    _require_up()
    machine.require_node(name)
    cgroups.freeze(state.load().cgroups, name, frozen)


def isolate_node(name, isolated):
    """Pulls a node's network cable, or plugs it in again."""
    _require_up()
    machine.require_node(name)
    network.set_cable(name, plugged=not isolated)


def execute(name, argv):
    """Ends this program with a command inside a machine. cp reaches pods, Services and cluster names."""
    _require_up()
    machine.become(name, argv)
