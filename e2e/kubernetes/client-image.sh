#!/usr/bin/env bash
# Packs the image of the client that the Kubernetes tests run in pods: kcat, and busybox for a shell and its tools.
#   client-image.sh FOLDER NAME
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
folder=$1
name=$2
root=$folder/root
"$top/image/assemble.sh" "$root" "$(command -v kcat)" "$(command -v busybox)"
for tool in $(busybox --list); do
  [ "$tool" = busybox ] || ln -s busybox "$root/usr/bin/$tool"
done
mkdir "$root/bin"
ln -s ../usr/bin/busybox "$root/bin/sh" # where scripts and tests look for it
dockerfile=$top/e2e/kubernetes/client.Dockerfile
"$top/image/pack.py" --dockerfile "$dockerfile" --context "$folder" --name "$name" "$folder/taffrail-client.tar"
"$top/image/check.py" "$dockerfile" "$folder" "$name" "$folder/taffrail-client.tar"
