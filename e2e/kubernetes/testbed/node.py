"""The processes of a node: containerd, the kubelet, and kube-proxy (which cp has too, so that it reaches Services)."""

import resource
import socket

from . import machine
from .settings import (BIN, CNI_BIN, CONFIG, CONTROL_PLANE, DNS_SERVICE_ADDRESS, KEYS, PAUSE_IMAGE, POD_RANGE, ZONES, address, node_name, node_number,
                       pod_range)
from .system import as_json, write_if_changed

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"


def start_containerd(name):
    folder = machine.folder(name)
    (folder / "cni").mkdir(exist_ok=True)
    write_if_changed(folder / "cni" / "10-bed.conflist", as_json(_pod_network(name)))
    write_if_changed(folder / "containerd.toml", _containerd_configuration(folder))
    machine.start(name, "containerd", ["containerd", "--config", folder / "containerd.toml", "--log-level", "warn"])


def containerd_answers(name):
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(f"/proc/{machine.running_pid(name)}/root{CONTAINERD_SOCKET}")
    return True


def _pod_network(name):
    """A veth pair for each pod and a route to it: no bridge in the node, and so nothing about hairpins to know."""
    addresses = {"type": "host-local", "dataDir": "/run/cni-addresses", "ranges": [[{"subnet": pod_range(name)}]], "routes": [{"dst": "0.0.0.0/0"}]}
    return {"cniVersion": "0.4.0", "name": "bed", "plugins": [
        {"type": "ptp", "ipMasq": False, "mtu": 1500, "ipam": addresses},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]}


def _containerd_configuration(folder):
    return f"""version = 2
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.devmapper"]

[grpc]
  address = "{CONTAINERD_SOCKET}"

# The default is made on the host, under /opt.
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  disable_apparmor = true
  # Where root lacks CAP_SYS_RESOURCE, no process may get an oom_score_adj below its parent's.
  restrict_oom_score_adj = true

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_BIN}"
    conf_dir = "{folder}/cni"
"""


def start_kubelet(name):
    write_if_changed(CONFIG / f"{name}.kubelet.json", as_json({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": f"{KEYS}/ca.crt"}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{KEYS}/{name}.crt",
        "tlsPrivateKeyFile": f"{KEYS}/{name}.key",
        "rotateCertificates": False,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDomain": "cluster.local",
        "clusterDNS": [DNS_SERVICE_ADDRESS],
        "resolvConf": f"{CONFIG}/resolv.conf",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",  # the default is made on the host, under /usr
        # no image can be fetched again, so none is collected
        "imageGCHighThresholdPercent": 100,
        # all nodes share the host's memory and disk: a full one is not theirs to mend
        "evictionHard": {"memory.available": "200Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%"},
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 8,
        "serializeImagePulls": False,
        "syncFrequency": "10s",
        "maxPods": 60,
        # more than the hard limit is refused
        "maxOpenFiles": min(1000000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
    }))
    labels = {"topology.kubernetes.io/zone": ZONES[node_number(name) - 1], "topology.kubernetes.io/region": "bed"}
    machine.start(name, "kubelet", [
        BIN / "kubelet", f"--config={CONFIG}/{name}.kubelet.json", f"--kubeconfig={CONFIG}/{name}.conf", f"--hostname-override={name}",
        f"--node-ip={address(name)}", "--node-labels=" + ",".join(f"{label}={value}" for label, value in labels.items())])


def start_proxy(name):
    write_if_changed(CONFIG / f"{name}.proxy.json", as_json({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": f"{CONFIG}/proxy.conf"},
        "clusterCIDR": POD_RANGE,
        # kube-proxy waits 30 s for the Node of its name, and cp has none
        "hostnameOverride": node_name(1) if name == CONTROL_PLANE else name,
        "bindAddress": address(name),
        "metricsBindAddress": "127.0.0.1:10249",
        "healthzBindAddress": "127.0.0.1:10256",
        # conntrack's limits belong to the whole host
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "nftables": {"minSyncPeriod": "200ms"},
    }))
    machine.start(name, "kube-proxy", [BIN / "kube-proxy", f"--config={CONFIG}/{name}.proxy.json"])
