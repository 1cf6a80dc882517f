#!/usr/bin/env bash
# Makes the root folder of an image: programs, exactly the libraries that they need, certificate authorities, and one user.
#   image/assemble.sh ROOT PROGRAM...
# The Dockerfile copies that folder, and pack.py packs it, so both make the same image.
set -euo pipefail
umask 022
[ $# -ge 2 ] || { sed -n '2,3s/^# *//p' "$0" >&2; exit 2; }
root=$1
shift

authorities=/usr/share/ca-certificates/mozilla
command -v strip >/dev/null || { echo "image: there is no strip: install binutils" >&2; exit 1; }
[ -d "$authorities" ] || { echo "image: there is no $authorities: install ca-certificates" >&2; exit 1; }

rm -rf "$root"
mkdir -p "$root/usr/bin" "$root/etc/ssl/certs" "$root/tmp"
chmod 1777 "$root/tmp"

for program in "$@"; do
  copy=$root/usr/bin/$(basename "$program")
  # Backtraces name their functions by the symbols, which stay.
  strip --strip-debug -o "$copy" "$program"
  chmod 755 "$copy"
  if ! libraries=$(ldd "$program" 2>&1); then
    [[ $libraries == *"not a dynamic executable"* ]] || { echo "image: ldd $program: $libraries" >&2; exit 1; }
    libraries=""
  fi
  if [[ $libraries == *"not found"* ]]; then
    echo "image: $program lacks a library:" "$(grep 'not found' <<<"$libraries")" >&2
    exit 1
  fi
  # "libm.so.6 => /lib/libm.so.6 (0x...)" and "/lib64/ld-linux-x86-64.so.2 (0x...)"; the kernel's own page has no file.
  for library in $(sed -n 's/^.* => \(\/[^ ]*\) (0x.*$/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (0x.*$/\1/p' <<<"$libraries"); do
    install -D -m 755 "$(readlink -f "$library")" "$root$library"
  done
done

# Of the package's files and not of this machine's bundle, which may trust an authority of its owner's.
cat "$authorities"/*.crt >"$root/etc/ssl/certs/ca-certificates.crt"

cat >"$root/etc/passwd" <<'END'
root:x:0:0:root:/:/nonexistent
taffrail:x:10001:10001:taffrail:/tmp:/nonexistent
END
cat >"$root/etc/group" <<'END'
root:x:0:
taffrail:x:10001:
END
# Without it glibc asks DNS before /etc/hosts, where a pod's own name stands.
echo "hosts: files dns" >"$root/etc/nsswitch.conf"
