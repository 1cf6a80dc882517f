"""The processes of the machine cp: etcd, the API server, the controllers, DNS, the volume provisioner, and the way in from the host."""

import sys

from . import machine
from .objects import PROVISIONER
from .settings import (API_PORT_INSIDE, AUDIT_LOG, BED, BIN, CONFIG, CONTROL_PLANE, CONTROL_PLANE_ADDRESS, KEYS, MACHINES, POD_RANGE, SERVICE_RANGE)
from .system import as_json, write_if_changed


def _start(program, *options):
    machine.start(CONTROL_PLANE, program, [BIN / program, *options])


def start_forwarder(listener):
    """Lets the host in by way of a listener of its own namespace, which cp's init has inherited."""
    machine.start(CONTROL_PLANE, "forward", [sys.executable, BED, "_forward", listener.fileno()], inherited=[listener.fileno()])


def start_api_server():
    etcd = "http://127.0.0.1:2379"
    peers = "http://127.0.0.1:2380"
    _start("etcd", "--name=cp", f"--data-dir={MACHINES}/cp/etcd", f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
           f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=cp={peers}", "--log-level=warn",
           # the bed need not outlive a crash of the whole machine
           "--unsafe-no-fsync")
    write_if_changed(CONFIG / "audit.json", as_json(_audit_policy()))
    _start("kube-apiserver", f"--etcd-servers={etcd}", f"--advertise-address={CONTROL_PLANE_ADDRESS}", "--bind-address=0.0.0.0",
           f"--secure-port={API_PORT_INSIDE}", f"--service-cluster-ip-range={SERVICE_RANGE}", "--authorization-mode=Node,RBAC",
           "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true", "--profiling=false",
           f"--client-ca-file={KEYS}/ca.crt", f"--tls-cert-file={KEYS}/apiserver.crt", f"--tls-private-key-file={KEYS}/apiserver.key",
           f"--kubelet-client-certificate={KEYS}/apiserver-kubelet.crt", f"--kubelet-client-key={KEYS}/apiserver-kubelet.key",
           f"--kubelet-certificate-authority={KEYS}/ca.crt", "--kubelet-preferred-address-types=InternalIP",
           "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
           f"--service-account-key-file={KEYS}/service-accounts.pub", f"--service-account-signing-key-file={KEYS}/service-accounts.key",
           f"--requestheader-client-ca-file={KEYS}/front-ca.crt", "--requestheader-allowed-names=front-proxy",
           "--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
           "--requestheader-username-headers=X-Remote-User", f"--proxy-client-cert-file={KEYS}/front.crt", f"--proxy-client-key-file={KEYS}/front.key",
           f"--audit-policy-file={CONFIG}/audit.json", f"--audit-log-path={AUDIT_LOG}", "--audit-log-maxsize=500",
           # pods leave a lost node within a test's patience
           "--default-not-ready-toleration-seconds=10", "--default-unreachable-toleration-seconds=10")


def _audit_policy():
    """Every write, by whom and to what, without bodies; the nodes' own reports are left out."""
    return {
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "verbs": ["get", "list", "watch"]},
            {"level": "None", "userGroups": ["system:nodes"]},
            {"level": "Metadata"},
        ],
    }


def start_controllers():
    """Once the API server answers: they would only end and be started again before."""
    def access(user):
        file = f"{CONFIG}/{user}.conf"
        return [f"--kubeconfig={file}", f"--authentication-kubeconfig={file}", f"--authorization-kubeconfig={file}",
                "--bind-address=127.0.0.1", "--leader-elect=false", "--profiling=false"]

    _start("kube-controller-manager", *access("controller-manager"), f"--service-account-private-key-file={KEYS}/service-accounts.key",
           f"--root-ca-file={KEYS}/ca.crt", f"--cluster-signing-cert-file={KEYS}/ca.crt", f"--cluster-signing-key-file={KEYS}/ca.key",
           "--use-service-account-credentials=true", f"--cluster-cidr={POD_RANGE}", "--allocate-node-cidrs=false",
           f"--flex-volume-plugin-dir={MACHINES}/cp/flex",  # the default is made on the host, under /usr
           "--node-monitor-period=2s", "--node-monitor-grace-period=16s",
           # with the usual limits its controllers start 150 ms apart, and the first pod waits seconds longer
           "--kube-api-qps=200", "--kube-api-burst=400")
    _start("kube-scheduler", *access("scheduler"))


def start_services():
    """DNS and volumes, once the objects that grant their rights are there."""
    write_if_changed(CONFIG / "Corefile", f""".:53 {{
    bind {CONTROL_PLANE_ADDRESS}
    errors
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {CONFIG}/coredns.conf
        pods insecure
        ttl 2
    }}
    # There is no other server to ask, and a refusal would make resolvers try again.
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
    cache {{
        success 9984 2
        denial 9984 1
    }}
}}
""")
    _start("coredns", "-conf", CONFIG / "Corefile")
    _start("volumes", f"--kubeconfig={CONFIG}/volumes.conf", f"--provisioner={PROVISIONER}", f"--folder={MACHINES}/NODE/volumes")
