#!/usr/bin/env bash
# Installs the Debian packages that the Kubernetes bed and its tests drive, where they are missing:
# the container runtime with its network plugins, kube-proxy's tools, kcat and a busybox for the client image, and Prometheus.
# Nothing that a package brings is started: the bed runs its own containerd in each node, and a test its own Prometheus.
set -euo pipefail

# FILE:PACKAGE, where the file shows that the package is there. Some are only on root's PATH.
pieces="
containerd:containerd
ctr:containerd
runc:runc
/usr/lib/cni/ptp:containernetworking-plugins
iptables:iptables
nft:nftables
conntrack:conntrack
ip:iproute2
nsenter:util-linux
openssl:openssl
kcat:kcat
busybox:busybox-static
strip:binutils
/usr/share/ca-certificates/mozilla:ca-certificates
prometheus:prometheus
"

missing() {
  local piece file
  for piece in $pieces; do
    file=${piece%:*}
    case $file in
      /*) [ -e "$file" ] ;;
      *) PATH=$PATH:/usr/sbin:/sbin command -v "$file" >/dev/null ;;
    esac || echo "${piece#*:}"
  done | sort -u
}

packages=$(missing)
[ -n "$packages" ] || exit 0
packages=$(echo $packages)
if ! command -v apt-get >/dev/null; then
  echo "kubernetes: this machine has no apt-get: install what Debian calls $packages, and run again" >&2
  exit 1
fi
as_root=""
[ "$(id -u)" = 0 ] || as_root=sudo
echo "kubernetes: installing $packages"

# The maintainer scripts ask this file before they start a service; 101 is "no". One that is there already stays as it is.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap '$as_root rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
  $as_root chmod 755 "$policy"
fi
$as_root apt-get update -qq
# shellcheck disable=SC2086 # one word for each package
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $packages >/dev/null
left=$(missing)
if [ -n "$left" ]; then
  echo "kubernetes: installed, and still not found:" $left >&2
  exit 1
fi
