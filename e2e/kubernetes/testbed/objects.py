"""The objects that every cluster of the bed has: what DNS and the volume provisioner may do, the DNS Service, the StorageClass."""

from .settings import CONTROL_PLANE_ADDRESS, DNS_SERVICE_ADDRESS

PROVISIONER = "taffrail-bed/folder"
READ = ["get", "list", "watch"]


def all_objects():
    dns_ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    return {"apiVersion": "v1", "kind": "List", "items": [
        *_role("coredns", _rule("", ["services", "pods", "namespaces"], READ), _rule("discovery.k8s.io", ["endpointslices"], READ)),
        *_role("volumes", _rule("", ["persistentvolumes"], READ + ["create", "delete"]), _rule("", ["persistentvolumeclaims"], READ)),
        # CoreDNS is a process of the control plane, so that it does not die with a node: its endpoint is written by hand.
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
         "spec": {"clusterIP": DNS_SERVICE_ADDRESS, "ports": dns_ports}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
         "metadata": {"name": "kube-dns-host", "namespace": "kube-system", "labels": {"kubernetes.io/service-name": "kube-dns"}},
         "endpoints": [{"addresses": [CONTROL_PLANE_ADDRESS], "conditions": {"ready": True}}], "ports": dns_ports},
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
         "metadata": {"name": "local", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
         "provisioner": PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer"},
    ]}


def _role(name, *rules):
    """A ClusterRole for the user that `certificates` makes under this name."""
    group = "rbac.authorization.k8s.io"
    name = f"system:{name}"
    return [
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": list(rules)},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
         "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name}, "subjects": [{"apiGroup": group, "kind": "User", "name": name}]},
    ]


def _rule(group, resources, verbs):
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}
