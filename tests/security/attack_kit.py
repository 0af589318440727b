"""Sent into the jail with each attack: system calls by name, and what came of them.

Standard library only: it runs under the jail's interpreter, not under ours.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import threading
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
ON_ARM = platform.machine() == "aarch64"

#: asm/unistd.h for x86-64 and asm-generic/unistd.h for arm64; from 424 on they are the same.
NUMBERS = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsmount": (432, 432),
    "mount_setattr": (442, 442), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "fanotify_init": (300, 262), "setns": (308, 268),
    "unshare": (272, 97), "socket": (41, 198), "clone": (56, 220), "clone3": (435, 435),
    "reboot": (169, 142),
    "swapon": (167, 224), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "adjtimex": (159, 171), "acct": (163, 89), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "sethostname": (170, 161), "setdomainname": (171, 162), "syslog": (103, 116),
    "personality": (135, 92), "seccomp": (317, 277), "openat2": (437, 437),
    "memfd_secret": (447, 447), "cachestat": (451, 451), "landlock_create_ruleset": (444, 444),
    "process_mrelease": (448, 448), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "mbind": (237, 235), "set_mempolicy": (238, 237), "listmount": (458, 458),
    "statmount": (457, 457), "lsm_set_self_attr": (460, 460), "vhangup": (153, 58),
}  # fmt: skip

CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET = 0x10000000, 0x00020000, 0x40000000
CLONE_NEWPID, SIGCHLD = 0x20000000, 17


def _given(argument: Any) -> Any:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def call(name: str, *arguments: Any) -> str:
    """Makes the system call; `ok` or the name of the errno."""
    ctypes.set_errno(0)
    number = NUMBERS[name][ON_ARM]
    result = LIBC.syscall(ctypes.c_long(number), *(_given(each) for each in arguments))
    return "ok" if result >= 0 else errno.errorcode[ctypes.get_errno()]


def refusal(attempt: Any, *arguments: Any, **more: Any) -> str:
    """Calls a function; `ok` or the name of the errno that it raised."""
    try:
        attempt(*arguments, **more)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "ok"


def read(path: str, most: int = 1 << 20) -> str:
    """Reads a file; its text, or the name of the errno."""
    try:
        with open(path, "rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def in_a_thread(attempt: Any) -> None:
    """Runs it in another thread than the main one, and waits."""
    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()


def in_a_child(attempt: Any) -> int:
    """Runs it in a forked child; its exit code, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        attempt()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
