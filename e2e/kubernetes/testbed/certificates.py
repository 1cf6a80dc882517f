"""The cluster's certificate authority, a certificate for each user and node, and their kubeconfig files. Made once, by openssl."""

import base64
from concurrent.futures import ThreadPoolExecutor

from .settings import API_PORT_INSIDE, CONFIG, CONTROL_PLANE_ADDRESS, KEYS, KUBECONFIG, address
from .system import as_json, run, write_if_changed

# {file name: (common name, organization)}; the roles of system:coredns and system:volumes are in `objects`.
USERS = {
    "admin": ("taffrail-bed-admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", None),
    "scheduler": ("system:kube-scheduler", None),
    "proxy": ("system:kube-proxy", None),
    "coredns": ("system:coredns", None),
    "volumes": ("system:volumes", None),
}


def make_all(nodes):
    """Everything that these nodes and the control plane need; what is there already stays."""
    KEYS.mkdir(parents=True, exist_ok=True)
    CONFIG.mkdir(parents=True, exist_ok=True)
    _authority("ca")
    _authority("front-ca")
    if not (KEYS / "service-accounts.pub").exists():
        run(["openssl", "genrsa", "-out", KEYS / "service-accounts.key", "2048"])
        run(["openssl", "rsa", "-in", KEYS / "service-accounts.key", "-pubout", "-out", KEYS / "service-accounts.pub"])
    service = "kubernetes.default"
    names = ["kubernetes", service, f"{service}.svc", f"{service}.svc.cluster.local", "localhost"]
    addresses = ["127.0.0.1", "10.96.0.1", CONTROL_PLANE_ADDRESS]
    wanted = [
        ("apiserver", "kube-apiserver", None, names, addresses, "ca"),
        ("apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters", [], [], "ca"),
        ("front", "front-proxy", None, [], [], "front-ca"),
    ]
    wanted += [(user, name, organization, [], [], "ca") for user, (name, organization) in USERS.items()]
    wanted += [(node, f"system:node:{node}", "system:nodes", [node], [address(node)], "ca") for node in nodes]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda each: _signed(*each), wanted))
    for user in [*USERS, *nodes]:
        _kubeconfig(CONFIG / f"{user}.conf", user, f"https://{CONTROL_PLANE_ADDRESS}:{API_PORT_INSIDE}")


def write_admin_kubeconfig(port):
    """The kubeconfig for the host, where the API server is on 127.0.0.1."""
    _kubeconfig(KUBECONFIG, "admin", f"https://127.0.0.1:{port}")


def _authority(name):
    extensions = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"]
    _certificate(name, f"taffrail-bed-{name}", None, extensions, [])


def _signed(name, common_name, organization, names, addresses, authority):
    extensions = ["authorityKeyIdentifier=keyid", "basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature",
                  "extendedKeyUsage=serverAuth,clientAuth"]
    others = [f"DNS:{each}" for each in names] + [f"IP:{each}" for each in addresses]
    if others:
        extensions.append("subjectAltName=" + ",".join(others))
    _certificate(name, common_name, organization, extensions, ["-CA", KEYS / f"{authority}.crt", "-CAkey", KEYS / f"{authority}.key"])


def _certificate(name, common_name, organization, extensions, signer):
    certificate = KEYS / f"{name}.crt"
    if certificate.exists():
        return
    subject = ([f"O={organization}"] if organization else []) + [f"CN={common_name}"]
    configuration = KEYS / f"{name}.cnf"
    configuration.write_text("\n".join(["[req]", "distinguished_name=subject", "prompt=no", "[subject]", *subject,
                                        "[extensions]", "subjectKeyIdentifier=hash", *extensions, ""]))
    unfinished = KEYS / f"{name}.crt.new"
    run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3650", "-sha256",
         "-config", configuration, "-extensions", "extensions", "-keyout", KEYS / f"{name}.key", "-out", unfinished, *signer])
    configuration.unlink()
    unfinished.rename(certificate)  # last: the certificate's file says that its key is there too


def _kubeconfig(path, user, server):
    encoded = lambda file: base64.b64encode((KEYS / file).read_bytes()).decode()
    name = "taffrail-bed"
    write_if_changed(path, as_json({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": encoded("ca.crt")}}],
        "users": [{"name": user, "user": {"client-certificate-data": encoded(f"{user}.crt"), "client-key-data": encoded(f"{user}.key")}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
    }))
    path.chmod(0o600)
