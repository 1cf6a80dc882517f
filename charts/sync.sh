#!/usr/bin/env bash
# Copies the generated CustomResourceDefinitions into the chart, byte for byte: a chart must hold all that it installs.
# With --check it writes nothing and tells whether the copies are current.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=charts/taffrail/files/crds
case "${1:-}" in
"")
    mkdir -p "$folder"
    rm -f "$folder"/*.yaml
    cp crds/*.yaml "$folder/"
    ;;
--check)
    for file in crds/*.yaml "$folder"/*.yaml; do
        name=$(basename "$file")
        if ! cmp -s "crds/$name" "$folder/$name"; then
            echo "$folder/$name is not crds/$name; run charts/sync.sh" >&2
            exit 1
        fi
    done
    ;;
*)
    echo "usage: charts/sync.sh [--check]" >&2
    exit 2
    ;;
esac
