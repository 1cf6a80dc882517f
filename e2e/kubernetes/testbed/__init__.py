"""A real Kubernetes cluster on one Linux machine, for Taffrail's end-to-end tests.

Every machine of the cluster ("cp" for the control plane, "node1", "node2", ...) is a set of namespaces (pid, mount, net, uts, ipc, cgroup)
under one init process. Killing that init is pulling the machine's plug: the kernel ends its processes and takes its mounts and its network
away. The nodes hang on a bridge inside cp's network namespace, which has no way out, so nothing is ever sent on the host's own network;
the host reaches the API server on 127.0.0.1 alone.
"""
