"""What a jail sees as its file system: the pieces of the host, and the little that we make.

`prepare` runs once at start and writes below a root-only directory; `mounts` is pure. The jail's
root is a tmpfs of nsjail's, mounted read-only when all is in place.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
import stat
from dataclasses import dataclass

from jail.profile import Profile

#: Where a merged-usr system has links and an older one directories.
_SYSTEM_ENTRIES = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
#: Of one jail: its own, and those that tmux or script open in it. Unused they cost nothing.
_TERMINALS_MAX = 32
#: Entries of /proc that programs need and that say nothing of the host's neighbours. All other
#: entries that are not a process are masked, whatever this kernel calls them. /proc/sys stays:
#: it belongs to root, and a jail has neither root nor a capability.
_PROC_SHOWN = frozenset(
    (
        "cgroups", "cpuinfo", "devices", "filesystems", "loadavg", "meminfo", "mounts", "net",
        "self", "stat", "swaps", "sys", "sysvipc", "thread-self", "uptime", "version", "vmstat",
    )
)  # fmt: skip
#: What runtimes read of the host's /etc: names and links, nothing with a secret in it.
_ETC_COPIED = (
    "ImageMagick-*", "R", "alternatives", "ca-certificates", "ca-certificates.conf", "fonts",
    "gai.conf", "inputrc", "java-*", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias",
    "localtime", "magic", "magic.mime", "mime.types", "mono", "octave*", "perl", "php", "pki/tls",
    "pki/ca-trust", "protocols", "python2*", "python3*", "services", "ssl/certs",
    "ssl/openssl.cnf", "terminfo", "timezone",
)  # fmt: skip
_HOSTS = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
_NSSWITCH = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
HOME = "/mnt/data"
USER = "sandbox"


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount of nsjail's configuration, in the order in which it is made."""

    target: str
    source: str = ""
    #: Of a file that is made for this jail alone.
    content: str = ""
    fstype: str = ""
    options: str = ""
    is_bind: bool = False
    is_symlink: bool = False
    is_dir: bool = True
    writable: bool = False
    devices: bool = False
    executable: bool = True


@dataclass(frozen=True, slots=True)
class Rootfs:
    """The pieces that are the same for every jail; found and made once by `prepare`."""

    system: tuple[Mount, ...]
    devices: tuple[Mount, ...]
    proc_masks: tuple[Mount, ...]
    etc: str


def prepare(runtime_dir: str, *, uid: int, gid: int) -> Rootfs:
    """Makes /etc and the masks below `runtime_dir`, replacing what an earlier start left there.

    Raises OSError if that directory cannot be written.
    """
    base = os.path.join(runtime_dir, "rootfs")
    # The owner of runtime_dir is root and no jail ever sees it: no link in it can be hostile.
    shutil.rmtree(base, ignore_errors=True)
    os.makedirs(base, mode=0o755)
    empty_file, empty_dir = os.path.join(base, "empty-file"), os.path.join(base, "empty-dir")
    _write(empty_file, "", mode=0o444)
    os.mkdir(empty_dir, 0o555)
    etc = os.path.join(base, "etc")
    _make_etc(etc, uid=uid, gid=gid)
    return Rootfs(
        system=_system_mounts(),
        devices=_device_mounts(),
        proc_masks=_proc_masks(empty_file, empty_dir),
        etc=etc,
    )


def mounts(rootfs: Rootfs, profile: Profile, resolv_conf: str | None = None) -> tuple[Mount, ...]:
    """Every mount of one jail. Pure. `resolv_conf` is that of its network, if it has one."""
    resolvers = Mount("/etc/resolv.conf", content=resolv_conf or "", is_dir=False, executable=False)
    # One inode a page: each is a kilobyte of the kernel's memory, and half a million take seconds
    # to free, in which the dead jail cannot be proven empty.
    tmpfs = f"size={profile.tmp_bytes},nr_inodes={profile.tmp_bytes >> 12},mode=1777"
    return (
        *rootfs.system,
        Mount("/etc", source=rootfs.etc, is_bind=True, executable=False),
        *((resolvers,) if resolv_conf else ()),
        # Writable for /proc/self/oom_score_adj; all that is not a process's own is root's.
        Mount("/proc", fstype="proc", writable=True, executable=False),
        *rootfs.proc_masks,
        *rootfs.devices,
        *(_terminal_mounts(profile) if profile.terminal is not None else ()),
        Mount("/dev/shm", fstype="tmpfs", options=tmpfs, writable=True),  # noqa: S108
        Mount("/tmp", fstype="tmpfs", options=tmpfs, writable=True),  # noqa: S108
        *(
            Mount(
                bind.target,
                source=bind.source,
                is_bind=True,
                is_dir=bind.is_dir,
                writable=bind.writable,
                executable=bind.executable,
            )
            for bind in profile.binds
        ),
    )


def _system_mounts() -> tuple[Mount, ...]:
    found = [Mount("/usr", source="/usr", is_bind=True)]
    for name in _SYSTEM_ENTRIES:
        path = f"/{name}"
        if os.path.islink(path):
            found.append(Mount(path, source=os.readlink(path), is_symlink=True))
        elif os.path.isdir(path):
            found.append(Mount(path, source=path, is_bind=True))
    return tuple(found)


def _device_mounts() -> tuple[Mount, ...]:
    nodes = [
        Mount(
            f"/dev/{name}",
            source=f"/dev/{name}",
            is_bind=True,
            is_dir=False,
            writable=True,
            devices=True,
            executable=False,
        )
        for name in _DEVICES
        if os.path.exists(f"/dev/{name}")
    ]
    links = [
        Mount(f"/dev/{name}", source=target, is_symlink=True)
        for name, target in _DEVICE_LINKS.items()
    ]
    return (*nodes, *links)


def _terminal_mounts(profile: Profile) -> tuple[Mount, ...]:
    """A devpts of the jail's own (each mount is a new instance since Linux 4.7), and its ptmx."""
    options = f"newinstance,ptmxmode=0666,mode=0620,gid={profile.gid},max={_TERMINALS_MAX}"
    return (
        Mount(
            "/dev/pts",
            fstype="devpts",
            options=options,
            writable=True,
            devices=True,
            executable=False,
        ),
        Mount("/dev/ptmx", source="pts/ptmx", is_symlink=True),
    )


def _proc_masks(empty_file: str, empty_dir: str) -> tuple[Mount, ...]:
    masks = []
    for name in sorted(os.listdir("/proc")):
        mode = os.lstat(f"/proc/{name}").st_mode if not name.isdigit() else stat.S_IFLNK
        if name in _PROC_SHOWN or stat.S_ISLNK(mode):
            continue
        if stat.S_ISREG(mode) and not mode & 0o077:
            # The kernel keeps it from all but root. Mounting over it opens it, and to open kmsg or
            # kcore the daemon would need CAP_SYSLOG or CAP_SYS_RAWIO.
            continue
        is_dir = stat.S_ISDIR(mode)
        source = empty_dir if is_dir else empty_file
        masks.append(
            Mount(f"/proc/{name}", source=source, is_bind=True, is_dir=is_dir, executable=False)
        )
    return tuple(masks)


def _make_etc(directory: str, *, uid: int, gid: int) -> None:
    os.mkdir(directory, 0o755)
    for pattern in _ETC_COPIED:
        parent, _, last = pattern.rpartition("/")
        source_dir = os.path.join("/etc", parent)
        if not os.path.isdir(source_dir):
            continue
        for name in fnmatch.filter(os.listdir(source_dir), last):
            _copy_public(os.path.join(source_dir, name), os.path.join(directory, parent, name))
    passwd = f"root:x:0:0:root:/root:/usr/sbin/nologin\n{USER}:x:{uid}:{gid}::{HOME}:/bin/sh\n"
    group = f"root:x:0:\n{USER}:x:{gid}:\n"
    nobody, nogroup = 65534, 65534
    if uid != nobody:
        passwd += f"nobody:x:{nobody}:{nogroup}:nobody:/nonexistent:/usr/sbin/nologin\n"
    if gid != nogroup:
        group += f"nogroup:x:{nogroup}:\n"
    _write(os.path.join(directory, "passwd"), passwd)
    _write(os.path.join(directory, "group"), group)
    _write(os.path.join(directory, "hosts"), _HOSTS)
    _write(os.path.join(directory, "nsswitch.conf"), _NSSWITCH)
    # Empty, and there to be mounted over.
    _write(os.path.join(directory, "resolv.conf"), "")
    # Programs such as df read it; the kernel's view is the jail's own.
    os.symlink("/proc/self/mounts", os.path.join(directory, "mtab"))


def _copy_public(source: str, target: str) -> None:
    """Copies links as links, and only files and directories that everyone may read."""
    mode = os.lstat(source).st_mode
    if stat.S_ISLNK(mode):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.symlink(os.readlink(source), target)
    elif stat.S_ISDIR(mode) and mode & stat.S_IXOTH:
        os.makedirs(target, exist_ok=True)
        for name in os.listdir(source):
            _copy_public(os.path.join(source, name), os.path.join(target, name))
    elif stat.S_ISREG(mode) and mode & stat.S_IROTH:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)
        os.chmod(target, stat.S_IMODE(mode) & 0o755)


def _write(path: str, text: str, *, mode: int = 0o644) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(file.fileno(), mode)
