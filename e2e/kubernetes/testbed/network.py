"""The machines' links and routes, the host's way to the API server, and a node's cable.

cp has a bridge; a node's eth0 is one end of a veth pair whose other end is a port of that bridge. The host's own namespace gets no link,
route or rule. A node's pods are reached by way of the node, so no overlay is needed.
"""

import asyncio
import socket
import struct

from . import machine
from .settings import (API_PORT_INSIDE, CONTROL_PLANE, CONTROL_PLANE_ADDRESS, NODES_MAX, SERVICE_RANGE, address, node_name, pod_range)

PREFIX_BITS = 24


def _ip(name, *lines):
    machine.run_in_network(name, ["ip", "-batch", "-"], text="\n".join(lines) + "\n")


def _pod_routes(besides=None):
    names = [node_name(number) for number in range(1, NODES_MAX + 1)]
    return [f"route add {pod_range(name)} via {address(name)}" for name in names if name != besides]


def _port(node):
    return f"p-{node}"


def connect_control_plane():
    _ip(CONTROL_PLANE, "link set lo up", "link add br0 type bridge", "link set br0 up", f"addr add {CONTROL_PLANE_ADDRESS}/{PREFIX_BITS} dev br0",
        # kube-proxy's rules answer for these; the route only lets the packet set out
        f"route add {SERVICE_RANGE} dev br0", *_pod_routes())


def connect_node(node):
    machine.run_in_network(CONTROL_PLANE, ["ip", "link", "del", _port(node)], check=False)  # of a node that was cut short
    _ip(CONTROL_PLANE, f"link add {_port(node)} type veth peer name eth0 netns {machine.running_pid(node)}",
        f"link set {_port(node)} master br0", f"link set {_port(node)} up")
    _ip(node, "link set lo up", f"addr add {address(node)}/{PREFIX_BITS} dev eth0", "link set eth0 up",
        f"route add default via {CONTROL_PLANE_ADDRESS}", *_pod_routes(besides=node))


def set_cable(node, plugged):
    """A node without its cable runs on and reaches nobody."""
    _ip(CONTROL_PLANE, f"link set {_port(node)} {'up' if plugged else 'down'}")


def resolves(name, server=CONTROL_PLANE_ADDRESS):
    """Does the cluster's DNS know an address of this name? To be called inside cp's network."""
    query = struct.pack(">6H", 0x1234, 0x0100, 1, 0, 0, 0)
    for label in name.split("."):
        query += bytes([len(label)]) + label.encode()
    query += b"\0" + struct.pack(">2H", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.settimeout(1)
        datagrams.sendto(query, (server, 53))
        reply = datagrams.recv(512)
    _, flags, _, answers, _, _ = struct.unpack(">6H", reply[:12])
    return flags & 15 == 0 and answers > 0


def listen_on_host(port):
    """A socket on 127.0.0.1 in the host's namespace, at any free port for 0; `forward` serves it from cp's namespace."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return listener


def forward(file_descriptor):
    """Carries connections of the host's listener to the API server, for ever."""
    asyncio.run(_forward(socket.socket(fileno=file_descriptor)))


async def _forward(listener):
    server = await asyncio.start_server(_carry, sock=listener)
    await server.serve_forever()


async def _carry(reader, writer):
    try:
        api_reader, api_writer = await asyncio.open_connection(CONTROL_PLANE_ADDRESS, API_PORT_INSIDE)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_copy(reader, api_writer), _copy(api_reader, writer))
    writer.close()
    api_writer.close()


async def _copy(reader, writer):
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()
