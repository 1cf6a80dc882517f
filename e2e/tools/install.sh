#!/usr/bin/env bash
# Brings what `make test`, `make bench` and `make chaos` drive from outside of Rust: kcat, Kafka's jars, a Python environment.
# Every piece is pinned (e2e/kafka/pom.xml with libs.sha256, requirements.txt with hashes) and goes to .tools/, which git ignores;
# kcat comes from the system's packages. A second run finds its stamps and asks the network nothing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
tools=$top/.tools
mkdir -p "$tools/stamps"

# fresh STAMP FILE...: is the stamp the checksum of these files as they are now?
fresh() {
  local stamp=$tools/stamps/$1
  shift
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(cat "$@" | sha256sum)" ]
}
stamp() {
  local stamp=$tools/stamps/$1
  shift
  cat "$@" | sha256sum >"$stamp"
}
say() { printf 'tools: %s\n' "$1"; }

# System packages: kcat, and the zlib headers and C++ compiler that the crate rdkafka builds librdkafka with.
need_packages() {
  local missing=()
  command -v kcat >/dev/null || missing+=(kcat)
  command -v g++ >/dev/null && command -v make >/dev/null || missing+=(build-essential)
  echo '#include <zlib.h>' | cc -E - >/dev/null 2>&1 || missing+=(zlib1g-dev)
  command -v java >/dev/null || missing+=(default-jre-headless)
  command -v mvn >/dev/null || missing+=(maven)
  # What taffrail-chaos torments brokers with. Where it may not (no root, another system), it leaves faults out and says which.
  if [ "$(uname)" = Linux ]; then
    local path=$PATH:/usr/sbin:/sbin
    PATH=$path command -v mkfs.ext4 >/dev/null || missing+=(e2fsprogs)
    PATH=$path command -v iptables >/dev/null || missing+=(iptables)
    PATH=$path command -v ip >/dev/null || missing+=(iproute2)
    [ -e "/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketimeMT.so.1" ] || missing+=(libfaketime)
  fi
  printf '%s\n' "${missing[@]}"
}
packages=$(need_packages)
if [ -n "$packages" ]; then
  say "installing $(echo $packages)"
  as_root=""
  [ "$(id -u)" = 0 ] || as_root=sudo
  $as_root apt-get update -qq
  # shellcheck disable=SC2086 # one word for each package
  DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $packages >/dev/null
fi

libs=$tools/kafka/libs
if ! fresh kafka "$top/e2e/kafka/pom.xml" "$top/e2e/kafka/libs.sha256" || [ ! -d "$libs" ]; then
  say "collecting Kafka's jars"
  rm -rf "$libs"
  mkdir -p "$libs"
  mvn -q -B -f "$top/e2e/kafka/pom.xml" dependency:copy-dependencies -DoutputDirectory="$libs" -DincludeScope=runtime
  (cd "$libs" && sha256sum --quiet -c "$top/e2e/kafka/libs.sha256")
  stamp kafka "$top/e2e/kafka/pom.xml" "$top/e2e/kafka/libs.sha256"
fi

python=$tools/python
if ! fresh python "$here/requirements.txt" || [ ! -x "$python/bin/python" ]; then
  say "building the Python environment"
  rm -rf "$python"
  python3 -m venv "$python"
  "$python/bin/pip" install --quiet --no-deps --require-hashes -r "$here/requirements.txt"
  stamp python "$here/requirements.txt"
fi
say "ready in .tools"
