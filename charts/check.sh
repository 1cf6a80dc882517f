#!/usr/bin/env bash
# Lints and renders the chart, and judges what it renders by Kubernetes' types. Writes nothing to the tree and needs
# neither a cluster nor a network. `helm` is taken from PATH, or from where the test cluster's tools are.
set -euo pipefail
cd "$(dirname "$0")/.."

chart=charts/taffrail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "charts/check.sh: $*" >&2
    exit 1
}

helm=$(command -v helm || ls -d "${TAFFRAIL_CACHE:-$HOME/.cache/taffrail}"/kubernetes-*/bin/helm 2>/dev/null | sort -V | tail -n 1)
[ -n "$helm" ] || fail "helm is neither in PATH nor among the tools of the test cluster"

render() {
    "$helm" template taffrail "$chart" --namespace taffrail-system --kube-version 1.34.0 "$@"
}

# A render must fail, and say why in these words.
refused() {
    local words=$1
    shift
    if render "$@" >"$work/out" 2>"$work/err"; then
        fail "helm template $* succeeds, but should be refused with: $words"
    fi
    grep -qF -- "$words" "$work/err" || fail "helm template $* does not say \"$words\" but: $(cat "$work/err")"
}

known() {
    cargo run --quiet --locked -p taffrail-crds --example known_fields
}

charts/sync.sh --check

version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
grep -qx "version: $version" "$chart/Chart.yaml" || fail "the chart's version is not the workspace's, $version"
grep -qx "appVersion: \"$version\"" "$chart/Chart.yaml" || fail "the chart's appVersion is not the workspace's, $version"

for values in "$chart"/ci/*-values.yaml; do
    "$helm" lint --quiet --strict --kube-version 1.34.0 "$chart" --values "$values" || fail "helm lint fails with $values"
    render --values "$values" >"$work/rendered.yaml"
    render --values "$values" | cmp -s - "$work/rendered.yaml" || fail "$values renders differently each time"
    known <"$work/rendered.yaml" || fail "what $values renders is not Kubernetes'"
done

# The judge itself: what is misspelt, deep within or at the top, must be found.
render --values "$chart/ci/default-values.yaml" >"$work/rendered.yaml"
for mistake in readOnlyRootFilesystem:readonlyRootFilesystem periodSeconds:periodSecond automountServiceAccountToken:automountToken \
    resourceNames:resourceName subjects:subject targetPort:targetport deletionPolicy:deletePolicy; do
    right=${mistake%%:*} wrong=${mistake##*:}
    grep -q "$right:" "$work/rendered.yaml" || fail "the chart has no $right, so misspelling it proves nothing"
    sed "s/\b$right:/$wrong:/" "$work/rendered.yaml" >"$work/wrong.yaml"
    if known <"$work/wrong.yaml" 2>"$work/err"; then
        fail "$wrong instead of $right was not found"
    fi
    grep -q "$wrong" "$work/err" || fail "$wrong instead of $right is not named but: $(cat "$work/err")"
done

# The manifests in the notes are pasted by people.
sed -n "/<<'END'/,/^END/{//!p}" "$chart/templates/NOTES.txt" >"$work/notes.yaml"
known <"$work/notes.yaml" || fail "what the notes show is not admitted"

refused "image.repository must be set"
given=(--set image.repository=registry.example.com/taffrail)
refused "replicas" "${given[@]}" --set replicas=2
refused "tags" "${given[@]}" --set image.tags=1
refused "keeps" "${given[@]}" --set crds.keeps=true
refused "podmonitor" "${given[@]}" --set metrics.podmonitor.enabled=true
refused "logFormat" "${given[@]}" --set logFormat=xml
refused "watchNamespaces" "${given[@]}" --set watchNamespaces=streaming
refused "digest" "${given[@]}" --set image.digest=latest
refused "test.topic must be set" "${given[@]}" --set test.cluster=demo
refused "test.cluster must be set" "${given[@]}" --set test.topic=orders
if "$helm" template taffrail "$chart" --kube-version 1.29.0 "${given[@]}" >/dev/null 2>"$work/err"; then
    fail "the chart renders for Kubernetes 1.29"
fi

# What a set of values leaves out.
render --values "$chart/ci/namespaced-values.yaml" >"$work/rendered.yaml"
! grep -qE '^kind: (ClusterRole|ClusterRoleBinding|CustomResourceDefinition)$' "$work/rendered.yaml" ||
    fail "the namespaced install has objects that belong to no namespace"
render "${given[@]}" --set crds.keep=false >"$work/rendered.yaml"
! grep -q 'helm.sh/resource-policy' "$work/rendered.yaml" || fail "crds.keep=false keeps"
[ "$(render "${given[@]}" | grep -c 'helm.sh/resource-policy: keep')" = "$(ls crds/*.yaml | wc -l)" ] ||
    fail "crds.keep=true does not keep each CRD"
