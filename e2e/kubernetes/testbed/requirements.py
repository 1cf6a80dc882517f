"""What this machine must have before a cluster can be made on it. Says what is missing and what to do about it; changes nothing."""

import os
import platform
import shutil
import sys

from . import cgroups
from .settings import BIN, CNI_BIN, HERE, WORK
from .system import Failure, read, run

COMMANDS = ["containerd", "ctr", "runc", "iptables", "nft", "conntrack", "ip", "nsenter", "openssl"]
PLUGINS = ["ptp", "host-local", "portmap", "loopback"]
PROGRAMS = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl", "coredns", "volumes", "pause"]


def check():
    """Raises a Failure with one sentence for the first thing that is missing."""
    check_host()
    missing = [program for program in PROGRAMS if not os.access(BIN / program, os.X_OK)]
    if missing:
        raise Failure(f"not built in {BIN}: {' '.join(missing)}; run {HERE}/build.sh")


def check_host():
    """All but the programs, which take long to build: to be asked before that."""
    if platform.system() != "Linux":
        raise Failure("the bed is made of Linux namespaces: run it on Linux")
    if sys.version_info < (3, 10):
        raise Failure(f"Python 3.10 or later is needed, this is {platform.python_version()}: start bed.py with a newer one")
    require_root()
    if not any(cgroups.hierarchies()):
        raise Failure("this host has no cgroup v1 hierarchies, which the bed needs: boot it with systemd.unified_cgroup_hierarchy=0, "
                      "or name another cluster in KUBECONFIG")
    missing = [command for command in COMMANDS if not shutil.which(command)]
    missing += [f"{CNI_BIN}/{plugin}" for plugin in PLUGINS if not os.path.exists(f"{CNI_BIN}/{plugin}")]
    if missing:
        raise Failure(f"not installed: {' '.join(missing)}; run {HERE}/install.sh")
    if "overlay" not in read("/proc/filesystems").split():
        raise Failure("the kernel has no overlay file system: load it with modprobe overlay")
    WORK.mkdir(parents=True, exist_ok=True)
    if run(["stat", "--file-system", "--format=%T", WORK]).strip() == "overlayfs":
        raise Failure(f"{WORK} is on an overlay file system, which cannot carry another: name a folder of a disk in KUBE_WORK")


def require_root():
    if os.geteuid():
        raise Failure("namespaces and mounts need root: run this as root")
