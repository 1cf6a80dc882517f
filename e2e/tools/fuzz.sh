#!/usr/bin/env bash
# fuzz.sh CARGO_FUZZ VERSION TOOLCHAIN SECONDS: runs every fuzz target of the workspace for that long.
# Installs cargo-fuzz on first use.
set -euo pipefail
cargo_fuzz=$1 version=$2 toolchain=$3 seconds=$4
cd "$(dirname "$0")/../.."

if ! cargo "+$toolchain" --version >/dev/null 2>&1; then
  echo "fuzz: there is no toolchain '$toolchain' (rustup toolchain install $toolchain)" >&2
  exit 1
fi
bin=$(dirname "$cargo_fuzz")
if [ ! -x "$cargo_fuzz" ]; then
  cargo install --locked --version "$version" --root "$(dirname "$bin")" cargo-fuzz
fi
export PATH=$bin:$PATH
for manifest in $(git ls-files '*fuzz/Cargo.toml'); do
  folder=$(dirname "$manifest")
  cargo "+$toolchain" fuzz build --fuzz-dir "$folder"
  for target in $(cargo "+$toolchain" fuzz list --fuzz-dir "$folder"); do
    echo "fuzz: $folder $target"
    # What is found goes to the first folder, so that the committed corpus stays as it is.
    found=$(dirname "$bin")/fuzz/$target
    mkdir -p "$found"
    # One allocation may be a small multiple of the input (4 KiB here), and the sanitizer's own bookkeeping is outside of that limit.
    cargo "+$toolchain" fuzz run --fuzz-dir "$folder" "$target" "$found" "$folder/corpus/$target" -- \
      -max_total_time="$seconds" -max_len=4096 -malloc_limit_mb=16 -rss_limit_mb=1024 -verbosity=0
  done
done
