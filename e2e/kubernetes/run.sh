#!/usr/bin/env bash
# What `make e2e` runs: the tests on a real Kubernetes. Brings the bed up for each suite and always takes it down again;
# where KUBECONFIG names a cluster, runs on that and leaves it as it is. Says at the end how long each phase took.
#   IMAGE, CLIENT_IMAGE   names of the images
#   SUITES                test targets to run (kubernetes kubernetes_zones)
#   TESTS                 arguments for the test binaries, as a test's name
#   E2E_WHERE_POSSIBLE    leaves the tests out, and says so, on a machine that cannot hold a cluster
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
cd "$top"
target=${CARGO_TARGET_DIR:-$top/target}
work=${KUBE_WORK:-$target/kubernetes}
bed=$here/bed.py
suites=${SUITES:-kubernetes kubernetes_zones}

report=""
phase() {
  local name=$1 began=$SECONDS code=0
  shift
  echo "e2e: $name"
  "$@" || code=$?
  report+=$(printf '%6d s  %s%s' $((SECONDS - began)) "$name" "$([ $code = 0 ] || echo ': failed')")$'\n'
  return $code
}
say() { printf 'e2e: %s\n' "$1" >&2; }

# Where is the cluster that the tests run on: that of the bed, started here or by `make cluster-up`, or another?
if [ -z "${KUBECONFIG:-}" ]; then
  where=bed
elif [ "$(readlink -f "$KUBECONFIG")" = "$(readlink -f "$work/kubeconfig")" ]; then
  where=running-bed
else
  where=foreign
fi

finish() {
  local code=$?
  trap - EXIT
  [ $where != bed ] || [ ! -e "$work/state.json" ] || "$bed" down || code=1
  printf '\n%s%6d s  in all\n' "$report" $SECONDS
  exit $code
}

if [ $where = foreign ]; then
  case "$IMAGE $CLIENT_IMAGE" in
    *localhost/*)
      say "KUBECONFIG names a cluster that is not the bed's: push what \`make image\` and \`make client-image\` pack to where it can pull, and name that in IMAGE= and CLIENT_IMAGE="
      exit 1
      ;;
  esac
elif [ $where = bed ] && [ -e "$work/state.json" ]; then
  say "a cluster of the bed is up: export KUBECONFIG=$work/kubeconfig to run on it, or end it with \`make cluster-down\`"
  exit 1
fi
trap finish EXIT
trap 'exit 130' INT TERM

phase "system packages" "$here/install.sh"
if [ $where = foreign ]; then
  phase "kubectl and helm" "$here/build.sh" kubectl helm
else
  if ! reason=$("$bed" check 2>&1); then
    say "$reason"
    [ -n "${E2E_WHERE_POSSIBLE:-}" ] || exit 1
    say "NOT RUN: the tests on Kubernetes are left out, because this machine cannot hold a cluster"
    exit 0
  fi
  phase "Kubernetes, helm" "$here/build.sh"
  phase "release build and images" make --no-print-directory image client-image IMAGE="$IMAGE" CLIENT_IMAGE="$CLIENT_IMAGE"
fi

tests() { cargo test --locked -p taffrail-e2e --features kubernetes "$@"; }
# shellcheck disable=SC2046 # a word for each suite
phase "build of the tests" tests --no-run $(printf -- '--test %s ' $suites)

export TAFFRAIL_IMAGE=$IMAGE TAFFRAIL_CLIENT_IMAGE=$CLIENT_IMAGE
PATH="$("$here/build.sh" --path):$PATH"
export PATH
if [ $where = foreign ]; then
  # The first node will do: a NodePort is open on all. Name a reachable one where this is not.
  address='{range .items[0].status.addresses[?(@.type=="ExternalIP")]}{.address}{end} {.items[0].status.addresses[?(@.type=="InternalIP")].address}'
  read -r TAFFRAIL_NODE_ADDRESS _ <<<"${TAFFRAIL_NODE_ADDRESS:-$(kubectl get nodes --output jsonpath="$address")}"
  export TAFFRAIL_NODE_ADDRESS
else
  export TAFFRAIL_BED=$bed TAFFRAIL_NODE_ADDRESS=10.240.0.11 TAFFRAIL_AUDIT_LOG=$work/log/audit.log
  export KUBECONFIG=$work/kubeconfig KUBE_WORK=$work
fi

load() { "$bed" load "$target/image/taffrail.tar" "$target/client-image/taffrail-client.tar"; }

# What a failed test left behind, from before the cluster goes: everything in it, and what its containers wrote.
keep_evidence() {
  local kept=$work/failed-$1
  rm -rf "$kept"
  mkdir -p "$kept"
  kubectl get all,clusters,topics,pvc,pv,configmaps,events --all-namespaces -o wide >"$kept/objects.txt" 2>&1 || true
  cp -r "$work/log" "$kept/" || true
  local node
  for node in "$work"/machines/node*; do
    cp -rL "$node/pod-logs" "$kept/$(basename "$node")-pods" || true
  done
  say "$1 failed; what was there is kept in $kept"
}

failed=0
for suite in $suites; do
  nodes=1
  [[ $suite != *_zones ]] || nodes=3
  if [ $where = bed ]; then
    phase "bed up, $nodes nodes" "$bed" up --nodes $nodes
  fi
  [ $where = foreign ] || phase "images loaded" load
  # shellcheck disable=SC2086 # arguments for the test binary
  if ! phase "tests: $suite" tests --test "$suite" -- ${TESTS:-}; then
    failed=1
    [ $where = foreign ] || keep_evidence "$suite"
  fi
  [ $where != bed ] || phase "bed down" "$bed" down
done
exit $failed
