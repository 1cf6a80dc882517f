#!/usr/bin/env bash
# Builds the Go programs of the Kubernetes bed, and helm, from modules that go.mod and go.sum pin:
#   build.sh            all that are missing or were built from other pins
#   build.sh NAME...    of these
#   build.sh --path     only says where they are
# They stay outside of the tree, by Kubernetes' version, for every clone on the machine: $TAFFRAIL_CACHE (~/.cache/taffrail).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=$(sed -n 's/^\tk8s\.io\/kubernetes v\([0-9.]*\)$/\1/p' "$here/go/kubernetes/go.mod")
bin=${KUBE_BIN:-${TAFFRAIL_CACHE:-$HOME/.cache/taffrail}/kubernetes-$version/bin}
if [ "${1:-}" = --path ]; then
  echo "$bin"
  exit 0
fi

# PROGRAM MODULE PACKAGE
programs="
kube-apiserver kubernetes k8s.io/kubernetes/cmd/kube-apiserver
kube-controller-manager kubernetes k8s.io/kubernetes/cmd/kube-controller-manager
kube-scheduler kubernetes k8s.io/kubernetes/cmd/kube-scheduler
kubelet kubernetes k8s.io/kubernetes/cmd/kubelet
kube-proxy kubernetes k8s.io/kubernetes/cmd/kube-proxy
kubectl kubernetes k8s.io/kubernetes/cmd/kubectl
pause kubernetes ./cmd/pause
volumes kubernetes ./cmd/volumes
etcd etcd go.etcd.io/etcd/server/v3
coredns coredns .
helm helm helm.sh/helm/v3/cmd/helm
"

# The checksum of all that a module's programs are made of.
pins() {
  (cd "$here/go/$1" && find . -name 'go.*' -o -name '*.go' | LC_ALL=C sort | xargs sha256sum | sha256sum)
}

# Without a version the API server and kubectl call themselves v0.0.0-master, which others refuse.
variables=k8s.io/component-base/version
minor=$(echo "$version" | cut -d. -f2)
link_flags="-s -w -X $variables.gitVersion=v$version -X $variables.gitMajor=${version%%.*} -X $variables.gitMinor=$minor"

mkdir -p "$bin/.pins"
# Two clones must not build at once: the second finds what the first has made.
exec 9>"$bin/.lock"
flock 9

build() {
  local program=$1 module=$2 package=$3 began=$SECONDS
  if ! command -v go >/dev/null; then
    echo "kubernetes: $program must be built, and there is no Go compiler: install Go $(sed -n 's/^go //p' "$here/go/$module/go.mod") or later" >&2
    exit 1
  fi
  (cd "$here/go/$module" && CGO_ENABLED=0 GOFLAGS='' go build -mod=readonly -buildvcs=false -ldflags "$link_flags" -o "$bin/.new" "$package")
  mv "$bin/.new" "$bin/$program"
  pins "$module" >"$bin/.pins/$program"
  printf 'kubernetes: built %-24s %4d s %4d MiB\n' "$program" $((SECONDS - began)) $(($(stat -c %s "$bin/$program") >> 20))
}

wanted=" $* "
known=""
while read -r program module package; do
  [ -n "$program" ] || continue
  known+=" $program "
  [ $# -eq 0 ] || [[ $wanted == *" $program "* ]] || continue
  [ -x "$bin/$program" ] && [ "$(cat "$bin/.pins/$program" 2>/dev/null)" = "$(pins "$module")" ] && continue
  build "$program" "$module" "$package" </dev/null
done <<<"$programs"
for program in "$@"; do
  [[ $known == *" $program "* ]] || { echo "kubernetes: no program is called $program; there are:$known" >&2; exit 2; }
done
