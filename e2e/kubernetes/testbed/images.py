"""Container images on the nodes: archives are kept in the work folder and imported into each node, for there is no registry."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import machine
from .settings import BIN, HERE, IMAGES, PAUSE_IMAGE, TOP, WORK
from .system import Failure, run

PAUSE_ARCHIVE = "pause.tar"


def make_pause_image():
    """The image of the process that holds a pod's namespaces open."""
    if (IMAGES / PAUSE_ARCHIVE).exists():
        return
    context = WORK / "pause"
    (context / "root").mkdir(parents=True, exist_ok=True)
    IMAGES.mkdir(exist_ok=True)
    shutil.copy(BIN / "pause", context / "root" / "pause")
    run([TOP / "image/pack.py", "--dockerfile", HERE / "pause.Dockerfile", "--context", context, "--name", PAUSE_IMAGE, IMAGES / PAUSE_ARCHIVE])


def keep(archives):
    """Copies archives to where `import_all` finds them, now and for nodes that are started later."""
    for archive in map(Path, archives):
        if not archive.is_file():
            raise Failure(f"there is no image archive {archive}")
        unfinished = IMAGES / f"{archive.name}.new"
        shutil.copyfile(archive, unfinished)
        unfinished.rename(IMAGES / archive.name)


def import_all(node):
    """Imports all archives into one node; what it has already costs little."""
    for archive in sorted(IMAGES.glob("*.tar")):
        machine.run_inside(node, ["ctr", "--namespace", "k8s.io", "images", "import", "--snapshotter", "overlayfs", archive])


def import_everywhere():
    """The nodes that run and so have got the images."""
    running = [node for node in machine.nodes() if machine.init_pid(node)]
    with ThreadPoolExecutor(len(running) or 1) as pool:
        list(pool.map(import_all, running))
    return running
