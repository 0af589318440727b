"""What the VM boots: Debian's cloud kernel, an initrd of our own, and the image's tree on a disk.

Made once into build/vm/ and kept; the disk again whenever the image has changed.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.demo import NotAsSaid
from tests.image import drive
from tests.image.podman import IMAGE, podman
from tests.image.telling import must, run

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build/vm"
ADDRESS, GATEWAY = f"{drive.PUBLIC_NETWORK}.15", f"{drive.PUBLIC_NETWORK}.2"
META_PACKAGE = "linux-image-cloud-amd64"
#: What the daemon and the disks need; what these need is found out.
MODULES = (
    "virtio_pci", "virtio_blk", "virtio_net", "overlay", "veth", "nf_tables", "nf_conntrack",
    "nft_ct", "nft_nat", "nft_masq", "nft_redir", "nft_chain_nat", "nft_reject_inet",
    "nft_fib_inet", "nft_connlimit", "nft_limit", "nft_objref", "quota_v2",
)  # fmt: skip
ROOT_SIZE, DATA_SIZE = "768M", 512 << 20
DOWNLOAD_TIMEOUT = 300.0


@dataclass(frozen=True, slots=True)
class Boot:
    """The files that a VM starts from."""

    kernel: Path
    initrd: Path
    root: Path


async def prepare() -> Boot:
    """Makes what is not there yet. Blocks in between; nothing else runs."""
    BUILD.mkdir(parents=True, exist_ok=True)
    tree = await _kernel_package()
    kernel = next(tree.glob("boot/vmlinuz-*"))
    return Boot(kernel, await _initrd(tree), await _root())


async def _kernel_package() -> Path:
    """The unpacked kernel package: nothing is installed on this machine."""
    tree = BUILD / "kernel"
    if tree.is_dir():
        return tree
    depends = (await run("apt-cache", "depends", META_PACKAGE)).out
    if not re.search(r"Depends: linux-image-", depends):
        await must("apt-get", "update", "-qq", timeout=DOWNLOAD_TIMEOUT)
        depends = await must("apt-cache", "depends", META_PACKAGE)
    found = re.search(r"Depends: (linux-image-\S+)", depends)
    if found is None:
        raise NotAsSaid(f"there is no package {META_PACKAGE} for this machine")
    with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
        download = f"cd {scratch} && apt-get download -qq {found[1]}"
        ran = await run("sh", "-c", download, timeout=DOWNLOAD_TIMEOUT)
        if ran.status != 0:  # The list knows a version that is gone.
            update = f"apt-get update -qq && {download}"
            await must("sh", "-c", update, timeout=DOWNLOAD_TIMEOUT)
        package = next(Path(scratch).glob("*.deb"))
        await must("dpkg-deb", "-x", str(package), f"{scratch}/tree")
        os.rename(f"{scratch}/tree", tree)
    return tree


async def _initrd(tree: Path) -> Path:
    target = BUILD / "initrd.gz"
    environment = json.loads((await podman("image", "inspect", IMAGE)).out)[0]["Config"]["Env"]
    with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
        root = Path(scratch)
        (root / "modules").mkdir()
        (root / "bin").mkdir()
        order = _in_order(tree)
        for module in order:
            shutil.copy(module, root / "modules")
        (root / "modules/order").write_text("".join(f"{each.name}\n" for each in order))
        exports = [f"export {each.replace('=', '=' + chr(39), 1)}'" for each in environment]
        lines = [f"ADDRESS={ADDRESS}", f"GATEWAY={GATEWAY}", *exports]
        (root / "settings").write_text("\n".join(lines) + "\n")
        shutil.copy(shutil.which("busybox") or "/bin/busybox", root / "bin")
        shutil.copy(HERE / "init", root / "init")
        archive = f"cd {scratch} && find . | busybox cpio --quiet -o -H newc > {BUILD}/initrd"
        await must("sh", "-c", archive)
    with open(BUILD / "initrd", "rb") as plain, gzip.open(target, "wb", compresslevel=1) as packed:
        shutil.copyfileobj(plain, packed)
    (BUILD / "initrd").unlink()
    return target


def _in_order(tree: Path) -> list[Path]:
    """The modules' files, each after those it depends on (`depends=` of its .modinfo section)."""
    files = {path.stem.replace("-", "_"): path for path in tree.rglob("*.ko")}
    order: list[Path] = []

    def add(name: str) -> None:
        path = files.get(name)
        if path is None or path in order:  # Built in, or there already.
            return
        found = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())
        for needed in found[1].decode().split(",") if found else []:
            add(needed.replace("-", "_"))
        order.append(path)

    for name in MODULES:
        add(name)
    return order


async def _root() -> Path:
    """The image's tree as a file system, as a platform makes it of an image."""
    image = json.loads((await podman("image", "inspect", IMAGE)).out)[0]["Id"]
    target, made_of = BUILD / "root.ext4", BUILD / "root.image"
    if target.exists() and made_of.exists() and made_of.read_text() == image:
        return target
    tree = await must("podman", "image", "mount", IMAGE)
    try:
        target.unlink(missing_ok=True)
        await must("mkfs.ext4", "-q", "-O", "^has_journal", "-m", "0", "-d", tree, str(target),
                   ROOT_SIZE)  # fmt: skip
    finally:
        await podman("image", "unmount", IMAGE)
    made_of.write_text(image)
    return target


async def data_disk(path: Path, *, size: int = DATA_SIZE) -> Path:
    """An empty disk for the data root, whose file system counts what each user has."""
    with open(path, "wb") as file:
        file.truncate(size)
    options = ("-m", "0", "-O", "quota", "-E", "lazy_itable_init=1")
    await must("mkfs.ext4", "-q", *options, str(path))
    return path
