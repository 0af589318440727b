"""Turns a `Profile` into nsjail's configuration: protobuf text format of nsjail's config.proto.

Pure. nsjail reads the text from a pipe, so no file of it exists and nothing of it is on a command
line. nsjail's own limits stay out of it: init sets them in exact bytes, the cgroup is ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from jail.profile import Profile
from jail.rootfs import Mount, Rootfs, mounts

#: nsjail's own time limit is a back-stop, in whole seconds, for a daemon that hangs.
BACKSTOP_MARGIN_S = 30
#: RLIMIT_CPU counts whole seconds of one process: past the limit by this, the kernel ends it.
CPU_BACKSTOP_S = 1


@dataclass(frozen=True, slots=True)
class Fixed:
    """What is the same for every jail of a host."""

    init: str
    seccomp: str
    rootfs: Rootfs
    #: No controller holds the limits: rlimits are all there is.
    advisory: bool


_NOT_PLAIN = re.compile(rb"[^ -~]|[\"\\']")


def quoted(text: str | bytes) -> str:
    """A protobuf text string: printable ASCII as it is, every other byte as three octal digits.

    Characters from outside may be surrogate escapes, so that any byte but NUL gets through.
    """
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    escaped = _NOT_PLAIN.sub(lambda byte: b"\\%03o" % ord(byte[0]), raw)
    return f'"{escaped.decode("ascii")}"'


def render(
    profile: Profile, fixed: Fixed, *, report_fd: int, resolv_conf: str | None = None
) -> bytes:
    """The whole configuration. `report_fd` is the descriptor number that init inherits.

    `resolv_conf` is that of the network which nsjail was started in, and stays in; without it
    nsjail makes an empty network namespace, whatever the profile says.

    Raises ValueError for an argument, variable or path that no execve could carry.
    """
    _refuse_nul(profile)
    return "\n".join(_lines(profile, fixed, report_fd, resolv_conf)).encode("ascii")


def _refuse_nul(profile: Profile) -> None:
    texts = [*profile.argv, profile.cwd, profile.hostname, *profile.env.values()]
    texts += [text for bind in profile.binds for text in (bind.source, bind.target)]
    if any("\x00" in text for text in texts):
        raise ValueError("a NUL cannot be passed to a program")
    if any(not name or "=" in name or "\x00" in name for name in profile.env):
        raise ValueError("an environment name is empty or contains = or NUL")
    if not profile.argv:
        raise ValueError("there is no command")


def _lines(
    profile: Profile, fixed: Fixed, report_fd: int, resolv_conf: str | None
) -> Iterator[str]:
    yield "mode: ONCE"
    yield "log_level: WARNING"
    yield f"hostname: {quoted(profile.hostname)}"
    yield f"cwd: {quoted(profile.cwd)}"
    yield f"time_limit: {-(-profile.limits.wall_ms // 1000) + BACKSTOP_MARGIN_S}"
    # The daemon is root outside of any user namespace: real ids, no mapping, all of it dropped.
    yield "clone_newuser: false"
    yield f"clone_newnet: {'true' if resolv_conf is None else 'false'}"
    yield "clone_newns: true clone_newpid: true clone_newipc: true clone_newuts: true"
    yield "clone_newcgroup: true"
    yield _id_map("uidmap", profile.uid)
    yield _id_map("gidmap", profile.gid)
    yield "keep_env: false keep_caps: false disable_no_new_privs: false skip_setsid: false"
    # nsjail's defaults are 19, and rlimits of its own taste.
    yield "nice_level: 0 disable_rl: true"
    yield "mount_proc: false"
    for mount in mounts(fixed.rootfs, profile, resolv_conf):
        yield _mount(mount)
    if fixed.seccomp:
        yield _seccomp(fixed.seccomp)
    for name, value in profile.env.items():
        yield f"envar: {quoted(f'{name}={value}')}"
    yield _command(profile, fixed, report_fd)


def _id_map(field: str, number: int) -> str:
    return f'{field} {{ inside_id: "{number}" outside_id: "{number}" count: 1 }}'


@lru_cache(maxsize=2)
def _seccomp(policy: str) -> str:
    """The comments are the larger part of the policy, and nsjail would parse them for each jail."""
    code = (line.partition("//")[0].rstrip() for line in policy.splitlines())
    return f"seccomp_string: {quoted(chr(10).join(filter(None, code)))}"


# Nearly all mounts of a jail are those of every other.
@lru_cache(maxsize=256)
def _mount(mount: Mount) -> str:
    fields = [f"dst: {quoted(mount.target)}"]
    if mount.source:
        fields.append(f"src: {quoted(mount.source)}")
    if mount.content:
        fields.append(f"src_content: {quoted(mount.content)}")
    if mount.is_symlink:
        return f"mount {{ {' '.join(fields)} is_symlink: true }}"
    if mount.fstype:
        fields.append(f"fstype: {quoted(mount.fstype)}")
    if mount.options:
        fields.append(f"options: {quoted(mount.options)}")
    flags = {
        "is_bind": mount.is_bind,
        "is_dir": mount.is_dir,
        "rw": mount.writable,
        "nosuid": True,
        "nodev": not mount.devices,
        "noexec": not mount.executable,
    }
    fields += [f"{name}: {'true' if on else 'false'}" for name, on in flags.items()]
    return f"mount {{ {' '.join(fields)} }}"


def limit_arguments(profile: Profile, *, advisory: bool) -> list[str]:
    """init's NAME:SOFT:HARD arguments, for setrlimit(2) on the command."""
    limits = profile.limits
    cpu_s = -(-limits.cpu_ms // 1000) + (0 if advisory else CPU_BACKSTOP_S)
    wanted = {
        "core": (0, 0),
        # At the soft limit comes SIGXCPU, at the hard one SIGKILL.
        "cpu": (cpu_s, cpu_s + 1),
        "fsize": (limits.file_size_bytes, limits.file_size_bytes),
        "nofile": (limits.open_files, limits.open_files),
    }
    if advisory:
        wanted["as"] = (limits.memory_bytes, limits.memory_bytes)
        wanted["nproc"] = (limits.pids, limits.pids)
    return [f"{name}:{soft}:{hard}" for name, (soft, hard) in wanted.items()]


def terminal_arguments(profile: Profile) -> list[str]:
    """init's terminal:COLUMNS:ROWS argument; none for a command with three streams."""
    size = profile.terminal
    return [] if size is None else [f"terminal:{size.columns}:{size.rows}"]


def _command(profile: Profile, fixed: Fixed, report_fd: int) -> str:
    arguments = [
        str(report_fd),
        *terminal_arguments(profile),
        *limit_arguments(profile, advisory=fixed.advisory),
        "--",
        *profile.argv,
    ]
    # exec_fd: init is opened before the mount namespace exists, so no file of it is in the jail.
    listed = " ".join(f"arg: {quoted(argument)}" for argument in arguments)
    return f'exec_bin {{ path: {quoted(fixed.init)} arg0: "init" exec_fd: true {listed} }}'
