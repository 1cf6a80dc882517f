#!/usr/bin/env python3
"""Checks an image archive against the folder it was packed from and the Dockerfile beside it; shares no code with pack.py.

  image/check.py DOCKERFILE CONTEXT NAME ARCHIVE
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True

HERE = Path(__file__).resolve().parent
SIZE_MAX = 60_000_000


class Archive(unittest.TestCase):
    """One archive; DOCKERFILE, CONTEXT, NAME and PATH are set by `main`."""

    @classmethod
    def setUpClass(cls):
        cls.maxDiff = None
        cls.dockerfile = re.sub(r"\\\n\s*", " ", cls.DOCKERFILE.read_text())
        with tarfile.open(cls.PATH) as archive:
            cls.members = {member.name: archive.extractfile(member).read() for member in archive.getmembers()}
        cls.described = json.loads(cls.members["index.json"])["manifests"][0]
        cls.manifest = json.loads(cls.blob(cls.described))
        cls.configuration = json.loads(cls.blob(cls.manifest["config"]))

    @classmethod
    def blob(cls, descriptor):
        return cls.members["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]

    def said(self, instruction):
        """The values of an instruction in the Dockerfile."""
        return re.findall(rf"^{instruction}\s+(.*?)\s*$", self.dockerfile, re.MULTILINE)

    def test_every_blob_has_the_digest_and_size_that_name_it(self):
        for descriptor in [self.described, self.manifest["config"], *self.manifest["layers"]]:
            blob = self.blob(descriptor)
            self.assertEqual(descriptor["digest"], "sha256:" + hashlib.sha256(blob).hexdigest())
            self.assertEqual(descriptor["size"], len(blob))
        self.assertEqual(self.configuration["rootfs"]["diff_ids"], [layer["digest"] for layer in self.manifest["layers"]])

    def test_the_layer_is_what_the_dockerfile_copies(self):
        self.assertEqual(self.said("FROM"), ["scratch"])
        (copied,) = self.said("COPY")
        source, target = copied.split()
        self.assertEqual(target, "/")
        folder = self.CONTEXT / source
        wanted = {}
        for parent, folders, files in os.walk(folder):
            for name in folders + files:
                path = os.path.join(parent, name)
                status = os.lstat(path)
                if os.path.islink(path):
                    wanted[os.path.relpath(path, folder)] = ("link", os.readlink(path))
                elif os.path.isdir(path):
                    wanted[os.path.relpath(path, folder)] = ("folder", oct(status.st_mode & 0o7777))
                else:
                    content = hashlib.sha256(Path(path).read_bytes()).hexdigest()
                    wanted[os.path.relpath(path, folder)] = ("file", oct(status.st_mode & 0o7777), content)
        with tempfile.TemporaryFile() as file:
            file.write(self.blob(self.manifest["layers"][0]))
            file.seek(0)
            with tarfile.open(fileobj=file) as layer:
                entries = layer.getmembers()
                found = {}
                for entry in entries:
                    self.assertEqual((entry.uid, entry.gid), (0, 0), entry.name)
                    if entry.issym():
                        found[entry.name] = ("link", entry.linkname)
                    elif entry.isdir():
                        found[entry.name] = ("folder", oct(entry.mode))
                    else:
                        content = hashlib.sha256(layer.extractfile(entry).read()).hexdigest()
                        found[entry.name] = ("file", oct(entry.mode), content)
        self.assertEqual(found, wanted)
        self.assertEqual(len(entries), len(found), "no path comes twice")

    def test_the_configuration_is_what_the_dockerfile_says(self):
        config = self.configuration["config"]
        self.assertEqual([config.get("User", "")], self.said("USER"))
        self.assertEqual(config.get("Entrypoint"), json.loads(self.said("ENTRYPOINT")[0]) if self.said("ENTRYPOINT") else None)
        labels = dict(re.findall(r'([\w.]+)="([^"]*)"', " ".join(self.said("LABEL"))))
        self.assertEqual(config.get("Labels", {}), labels)
        self.assertEqual(self.configuration["os"], "linux")

    def test_the_user_is_a_number_that_is_not_root_and_has_a_name(self):
        user, group = self.configuration["config"]["User"].split(":")
        self.assertGreater(int(user), 0)
        self.assertGreater(int(group), 0)
        root = self.CONTEXT / "root"
        self.assertRegex((root / "etc/passwd").read_text(), rf"(?m)^\w+:x:{user}:{group}:")
        self.assertRegex((root / "etc/group").read_text(), rf"(?m)^\w+:x:{group}:")

    def test_it_carries_its_name(self):
        self.assertEqual(self.described["annotations"]["io.containerd.image.name"], self.NAME)

    def test_it_is_small(self):
        self.assertLess(self.PATH.stat().st_size, SIZE_MAX)

    def test_the_same_folder_gives_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            again = Path(folder) / "again.tar"
            subprocess.run([HERE / "pack.py", "--dockerfile", self.DOCKERFILE, "--context", self.CONTEXT, "--name", self.NAME, again], check=True)
            self.assertTrue(again.read_bytes() == self.PATH.read_bytes())

    def test_its_programs_start_with_nothing_but_the_folder(self):
        if os.geteuid():
            self.skipTest("a root folder can be changed to by root alone")
        root = self.CONTEXT / "root"
        user = self.configuration["config"]["User"]
        for program in sorted((root / "usr/bin").iterdir()):
            if program.is_symlink():
                continue
            option = "-V" if program.name == "kcat" else "--help" if program.name == "busybox" else "--version"
            started = subprocess.run(["chroot", f"--userspec={user}", root, f"/usr/bin/{program.name}", option], capture_output=True, text=True)
            self.assertEqual(started.returncode, 0, f"{program.name}: {started.stderr}")


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    Archive.DOCKERFILE, Archive.CONTEXT, Archive.NAME, Archive.PATH = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    unittest.main(argv=sys.argv[:1])


if __name__ == "__main__":
    main()
