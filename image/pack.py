#!/usr/bin/env python3
"""Packs a folder as an OCI image archive of one layer, as a container engine would by a Dockerfile, without one and without root.

The same folder gives the same bytes: entries are sorted, belong to root, and carry one time (SOURCE_DATE_EPOCH, else 0).
"""

import argparse
import hashlib
import io
import json
import os
import platform
import stat
import sys
import tarfile
from datetime import datetime, timezone
from pathlib import Path

sys.dont_write_bytecode = True

import dockerfile

MEDIA_TYPE = "application/vnd.oci.image."
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def layer(folder, seconds):
    """A tar of everything in the folder; owners and times are not taken from it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            entry = tarfile.TarInfo(str(path.relative_to(folder)))
            entry.mtime = seconds
            status = path.lstat()
            entry.mode = stat.S_IMODE(status.st_mode)
            if path.is_symlink():
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, os.readlink(path), 0o777
                archive.addfile(entry)
            elif path.is_dir():
                entry.type = tarfile.DIRTYPE
                archive.addfile(entry)
            elif path.is_file():
                entry.size = status.st_size
                with path.open("rb") as content:
                    archive.addfile(entry, content)
            else:
                sys.exit(f"pack.py: {path} is neither a file, a folder nor a link")
    return packed.getvalue()


def configuration(told, layer_digest, seconds):
    """The image's configuration: what a container of it runs, and as whom."""
    config = {"User": told.user, "WorkingDir": told.working_directory, "Env": told.environment, "Labels": told.labels, "Entrypoint": told.entrypoint}
    return {
        "created": datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {name: value for name, value in config.items() if value},
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
    }


def archive_members(told, name, packed_layer, seconds):
    """(path, content) of the archive: an OCI image layout."""
    as_json = lambda value: json.dumps(value, sort_keys=True).encode()
    config = as_json(configuration(told, digest(packed_layer), seconds))

    def described(kind, content, **more):
        return {"mediaType": f"{MEDIA_TYPE}{kind}", "digest": digest(content), "size": len(content), **more}

    manifest = as_json({
        "schemaVersion": 2,
        "mediaType": f"{MEDIA_TYPE}manifest.v1+json",
        "config": described("config.v1+json", config),
        "layers": [described("layer.v1.tar", packed_layer)],
    })
    # containerd takes the name from the first, other tools the tag from the second.
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    index = as_json({"schemaVersion": 2, "manifests": [described("manifest.v1+json", manifest, annotations=names)]})
    yield "oci-layout", as_json({"imageLayoutVersion": "1.0.0"})
    yield "index.json", index
    for content in (config, manifest, packed_layer):
        yield "blobs/sha256/" + digest(content).partition(":")[2], content


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dockerfile", type=Path, required=True)
    parser.add_argument("--context", type=Path, required=True, help="the folder that the Dockerfile's COPY starts from")
    parser.add_argument("--name", required=True, help="the image's whole name, as localhost/taffrail:dev")
    parser.add_argument("archive", type=Path)
    given = parser.parse_args()
    if ":" not in given.name.rpartition("/")[2]:
        sys.exit(f"pack.py: the name {given.name} has no tag: write {given.name}:dev or the like")
    try:
        told = dockerfile.parse(given.dockerfile.read_text())
    except dockerfile.Refused as refused:
        sys.exit(f"pack.py: {given.dockerfile}: {refused}")
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or 0)
    packed = layer(given.context / told.folder, seconds)
    given.archive.parent.mkdir(parents=True, exist_ok=True)
    unfinished = given.archive.with_name(given.archive.name + ".new")
    with tarfile.open(unfinished, "w", format=tarfile.GNU_FORMAT) as archive:
        for path, content in archive_members(told, given.name, packed, seconds):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mtime = len(content), seconds
            archive.addfile(entry, io.BytesIO(content))
    unfinished.replace(given.archive)


if __name__ == "__main__":
    main()
