#!/usr/bin/env bash
# Brings what only `make clients` runs: the libraries of each ecosystem, from its registry, into .tools/clients (git ignores it).
# Pinned: python/requirements.txt with hashes, java/pom.xml with libs.sha256, go/go.sum, node/package-lock.json. kcat and Kafka's
# tools come with `make tools`. A second run finds its stamps and asks the network nothing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tools=$(cd "$here/../.." && pwd)/.tools/clients
mkdir -p "$tools/stamps"

# once NAME FILE...: does install_NAME unless that was done with these files as they are now.
once() {
  local name=$1 sum
  shift
  sum=$(cat "$@" | sha256sum)
  [ "$(cat "$tools/stamps/$name" 2>/dev/null)" = "$sum" ] && return
  printf 'clients: installing for %s\n' "$name"
  "install_$name"
  echo "$sum" >"$tools/stamps/$name"
}

install_python() {
  rm -rf "$tools/python"
  python3 -m venv "$tools/python"
  "$tools/python/bin/pip" install --quiet --no-deps --require-hashes -r "$here/python/requirements.txt"
}

install_java() {
  rm -rf "$tools/java-3.9"
  mvn -q -B -f "$here/java/pom.xml" dependency:copy-dependencies -DoutputDirectory="$tools/java-3.9" -DincludeScope=runtime
  (cd "$tools/java-3.9" && sha256sum --quiet -c "$here/java/libs.sha256")
}

install_node() {
  mkdir -p "$tools/node"
  cp "$here/node/package.json" "$here/node/package-lock.json" "$tools/node/"
  (cd "$tools/node" && npm ci --silent --no-audit --no-fund)
}

install_go() {
  (cd "$here/go" && go build -mod=readonly -o "$tools/go/" ./franz ./sarama ./segmentio)
}

for program in go node npm; do
  command -v "$program" >/dev/null || {
    echo "clients: $program is not there" >&2
    exit 1
  }
done
once python "$here/python/requirements.txt"
once java "$here/java/pom.xml" "$here/java/libs.sha256"
once node "$here/node/package-lock.json"
once go "$here"/go/go.mod "$here"/go/go.sum "$here"/go/*/*.go
echo "clients: ready in .tools/clients"
