#!/usr/bin/env python3
"""The command line of the test bed: a real Kubernetes cluster on this machine (see README.md and testbed/__init__.py)."""

import argparse
import os
import sys

sys.dont_write_bytecode = True  # the tree stays as it is

from testbed import cluster, network, requirements, supervisor
from testbed.settings import CONTROL_PLANE
from testbed.system import Failure

ENVIRONMENT = """environment:
  NODES          nodes that `up` starts when --nodes is not given (1); node1 is in zone a, node2 in b, ...
  KUBE_WORK      state, logs and the kubeconfig (kubernetes/ in the target folder)
  KUBE_BIN       the programs (where build.sh puts them)
  KUBE_CNI_BIN   the network plugins (/usr/lib/cni)
  KUBE_API_PORT  the API server's port on 127.0.0.1 (any that is free)
"""


def parser():
    top = argparse.ArgumentParser(description=__doc__, epilog=ENVIRONMENT, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name, text, action, *arguments):
        command = commands.add_parser(name, help=text, description=text)
        for argument, options in arguments:
            command.add_argument(argument, **options)
        command.set_defaults(action=action)

    node = ("node", {"help": "node1, node2, ..."})
    count = ("--nodes", {"type": int, "default": int(os.environ.get("NODES") or 1)})
    add("up", "start the cluster, or what is missing of it", lambda given: cluster.up(given.nodes), count)
    add("down", "end the cluster; only its logs stay", lambda given: cluster.down())
    add("check", "say what this machine lacks, but for the programs that are built", lambda given: requirements.check_host())
    add("status", "list the machines and their processes", lambda given: cluster.status())
    add("load", "load OCI image archives into all nodes", lambda given: cluster.load(given.archive), ("archive", {"nargs": "+"}))
    add("exec", "run a command inside a machine; cp reaches pods, Services and cluster names",
        lambda given: cluster.execute(given.machine, given.argv or ["bash"]),
        ("machine", {"help": f"{CONTROL_PLANE}, node1, ..."}), ("argv", {"nargs": argparse.REMAINDER}))
    add("kill-node", "pull a node's plug", lambda given: cluster.kill_node(given.node), node)
    add("start-node", "boot a node that is off, with the disks it had", lambda given: cluster.start_node(given.node), node)
    add("freeze-node", "stop every process of a node", lambda given: cluster.freeze_node(given.node, True), node)
    add("thaw-node", "let a frozen node go on", lambda given: cluster.freeze_node(given.node, False), node)
    add("isolate-node", "pull a node's network cable", lambda given: cluster.isolate_node(given.node, True), node)
    add("heal-node", "plug the network cable in again", lambda given: cluster.isolate_node(given.node, False), node)
    return top


def main():
    # What the bed itself runs inside a machine.
    if sys.argv[1:2] == ["_init"]:
        supervisor.run(sys.argv[2])
    elif sys.argv[1:2] == ["_forward"]:
        network.forward(int(sys.argv[2]))
    else:
        given = parser().parse_args()
        os.environ["PATH"] += ":/usr/sbin:/sbin"  # root's tools, which a plain shell may not see
        try:
            given.action(given)
        except Failure as failure:
            sys.exit(f"bed.py {given.command}: {failure}")
        except KeyboardInterrupt:
            sys.exit(f"bed.py {given.command}: interrupted; `bed.py down` takes away what is there")


if __name__ == "__main__":
    main()
