"""Where the bed keeps its files, and the addresses it gives its machines. Decides nothing and touches nothing."""

import hashlib
import os
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
TOP = HERE.parent.parent
BED = HERE / "bed.py"


def _from_environment(name, default):
    return Path(os.environ.get(name) or default).expanduser().absolute()


def _kubernetes_version():
    return re.search(r"^\tk8s\.io/kubernetes v(\S+)$", (HERE / "go/kubernetes/go.mod").read_text(), re.MULTILINE).group(1)


WORK = _from_environment("KUBE_WORK", _from_environment("CARGO_TARGET_DIR", TOP / "target") / "kubernetes")
BIN = _from_environment("KUBE_BIN", _from_environment("TAFFRAIL_CACHE", "~/.cache/taffrail") / f"kubernetes-{_kubernetes_version()}" / "bin")
# Debian's package puts the plugins here; other distributions use /opt/cni/bin.
CNI_BIN = os.environ.get("KUBE_CNI_BIN") or "/usr/lib/cni"

# Two clones on one machine may each run a cluster: what is visible on the whole host carries the work folder's hash.
CLUSTER = "taffrail-bed-" + hashlib.sha256(str(WORK).encode()).hexdigest()[:8]

MACHINES = WORK / "machines"
KEYS = WORK / "keys"
CONFIG = WORK / "config"
LOGS = WORK / "log"
IMAGES = WORK / "images"
KUBECONFIG = WORK / "kubeconfig"
AUDIT_LOG = LOGS / "audit.log"

NODES_MAX = 9
ZONES = "abcdefghi"
CONTROL_PLANE = "cp"
CONTROL_PLANE_ADDRESS = "10.240.0.1"
API_PORT_INSIDE = 6443
DNS_SERVICE_ADDRESS = "10.96.0.10"
SERVICE_RANGE = "10.96.0.0/16"
POD_RANGE = "10.244.0.0/16"
PAUSE_IMAGE = "localhost/pause:1"


def node_name(number):
    return f"node{number}"


def node_number(name):
    """node3 -> 3; None for what is no node's name."""
    found = re.fullmatch(r"node([1-9])", name)
    return int(found.group(1)) if found else None


def address(name):
    """The address of a machine's eth0 (of its bridge for the control plane)."""
    return CONTROL_PLANE_ADDRESS if name == CONTROL_PLANE else f"10.240.0.{10 + node_number(name)}"


def pod_range(name):
    """The addresses of a node's pods."""
    return f"10.244.{node_number(name)}.0/24"
