"""Reading from the cluster's API server as its administrator, and applying manifests to it."""

import http.client
import json
import ssl
from datetime import datetime

from . import state
from .settings import BIN, KEYS, KUBECONFIG
from .system import Failure, run


def get(path):
    """The body of an API path, as bytes."""
    context = ssl.create_default_context(cafile=KEYS / "ca.crt")
    context.load_cert_chain(KEYS / "admin.crt", KEYS / "admin.key")
    connection = http.client.HTTPSConnection("127.0.0.1", state.load().api_port, timeout=5, context=context)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise Failure(f"the API server answers {response.status} to {path}: {body[:200].decode(errors='replace')}")
    return body


def apply(manifests):
    run([BIN / "kubectl", f"--kubeconfig={KUBECONFIG}", "apply", "--server-side", "--force-conflicts", "-f", "-"], text=json.dumps(manifests))


def node_is_ready(name, since):
    """Is the node Ready by the word of a kubelet that has reported since then (seconds of the epoch)?

    The lease tells: after a power cut the Node object says Ready from before for a while."""
    lease = json.loads(get(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"))
    renewed = datetime.fromisoformat(lease["spec"]["renewTime"].replace("Z", "+00:00")).timestamp()
    if renewed < since:
        return False
    conditions = json.loads(get(f"/api/v1/nodes/{name}"))["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
