"""System calls that lead into the kernel, into other processes or to other namespaces.

What no ordinary program does ends the whole process; what programs probe is refused.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.security.conftest import Attacker

pytestmark = pytest.mark.asyncio(loop_scope="module")

FATAL = {
    "mount a file system": "call('mount', b'none', b'/tmp', b'tmpfs', 0, None)",
    "mount over the system": "call('mount', b'/mnt/data', b'/usr', None, 4096, None)",
    "unmount the masks of /proc": "call('umount2', b'/proc/kcore', 2)",
    "change the root": "call('pivot_root', b'/mnt/data', b'/mnt/data')",
    "chroot": "call('chroot', b'/mnt/data')",
    "a detached mount": "call('open_tree', -100, b'/', 1)",
    "move a mount": "call('move_mount', -100, b'/tmp', -100, b'/mnt', 0)",
    "a file system context": "call('fsopen', b'tmpfs', 0)",
    "change a mount's flags": "call('mount_setattr', -100, b'/usr', 0, None, 0)",
    "open by handle": "call('open_by_handle_at', -100, b'x' * 64, 0)",
    "watch a whole mount": "call('fanotify_init', 0, 0)",
    "trace init": "call('ptrace', 0x4206, 1, 0, 0)",
    "trace itself": "call('ptrace', 0, 0, 0, 0)",
    "read init's memory": "call('process_vm_readv', 1, None, 0, None, 0, 0)",
    "write init's memory": "call('process_vm_writev', 1, None, 0, None, 0, 0)",
    "the user's keyring": "call('keyctl', 0, -4, 1)",
    "leave a key": "call('add_key', b'user', b'left', b'secret', 6, -4)",
    "ask for a key": "call('request_key', b'user', b'left', None, -4)",
    "load a program into the kernel": "call('bpf', 0, None, 0)",
    "performance counters": "call('perf_event_open', None, 0, -1, -1, 0)",
    "handle page faults": "call('userfaultfd', 1)",
    "load a module": "call('finit_module', 0, b'', 0)",
    "remove a module": "call('delete_module', b'ext4', 0)",
    "another kernel": "call('kexec_load', 0, 0, None, 0)",
    "join a namespace": "call('setns', os.open('/proc/self/ns/net', os.O_RDONLY), 0)",
    "set the time of day": "call('settimeofday', None, None)",
    "set a clock": "call('clock_settime', 0, b'\\0' * 16)",
    "reboot": "call('reboot', 0xfee1dead, 672274793, 0x1234567, None)",
    "swap": "call('swapon', b'/mnt/data/x', 0)",
    "process accounting": "call('acct', None)",
    "quotas": "call('quotactl', 0, None, 0, None)",
}


async def test_what_no_program_needs_ends_the_process(attack: Attacker) -> None:
    programs = (f"print('before', flush=True)\nprint('after', {code})" for code in FATAL.values())
    ran = await asyncio.gather(*(attack(program, session=None) for program in programs))
    ends = {
        name: (each.kind, each.stage["signal"], each.stage["code"], each.out)
        for name, each in zip(FATAL, ran, strict=True)
    }
    assert ends == dict.fromkeys(FATAL, ("syscall_denied", "SIGSYS", 159, "before\n"))


#: program → what it prints
REFUSED = {
    "attach to init": ("call('ptrace', 16, 1, 0, 0)", "EPERM"),
    "attach to a brother": ("call('ptrace', 16, os.getppid(), 0, 0)", "EPERM"),
    "a user namespace": ("call('unshare', CLONE_NEWUSER)", "EPERM"),
    "a user namespace by clone": ("call('clone', CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0)", "EPERM"),
    "a user namespace by clone3": (
        "call('clone3', (ctypes.c_uint64 * 8)(CLONE_NEWUSER, 0, 0, 0, SIGCHLD), 64)",
        "ENOSYS",
    ),
    "any clone3": ("call('clone3', (ctypes.c_uint64 * 8)(0, 0, 0, 0, SIGCHLD), 64)", "ENOSYS"),
    "a mount namespace": ("call('unshare', CLONE_NEWNS)", "EPERM"),
    "a network namespace": ("call('unshare', CLONE_NEWNET)", "EPERM"),
    "a pid namespace": ("call('unshare', CLONE_NEWPID)", "EPERM"),
    "io_uring": ("call('io_uring_setup', 8, b'\\0' * 120)", "ENOSYS"),
    "io_uring of a forged ring": ("call('io_uring_enter', 0, 1, 1, 0, None, 0)", "ENOSYS"),
    "a copy of init's descriptor": ("call('pidfd_getfd', os.pidfd_open(1), 3, 0)", "EPERM"),
    "compare with init": ("call('kcmp', 1, os.getpid(), 0, 0, 0)", "EPERM"),
    "advise another process": ("call('process_madvise', 0, None, 0, 4, 0)", "ENOSYS"),
    "reap another's memory": ("call('process_mrelease', os.pidfd_open(1), 0)", "ENOSYS"),
    "move another's pages": ("call('move_pages', 1, 0, None, None, None, 0)", "ENOSYS"),
    "a handle of a file": (
        "call('name_to_handle_at', -100, b'/usr', b'\\0' * 136, b'\\0' * 4, 0)",
        "ENOSYS",
    ),
    "memory no one can see": ("call('memfd_secret', 0)", "ENOSYS"),
    "list the mounts": ("call('listmount', None, None, 0, 0)", "ENOSYS"),
    "look at the page cache": ("call('cachestat', 0, None, None, 0)", "ENOSYS"),
    "the host's name": ("call('sethostname', b'x', 1)", "EPERM"),
    "the domain's name": ("call('setdomainname', b'x', 1)", "EPERM"),
    "the kernel's log": ("call('syslog', 2, b'\\0' * 99, 99)", "EPERM"),
    "steer the clock": ("call('adjtimex', b'\\0' * 208)", "EPERM"),
    "an executable stack for all": ("call('personality', 0x0400000)", "EPERM"),
    "supervise system calls": ("call('seccomp', 1, 8, None)", "EPERM"),
    "another filter is narrower only": (
        "str(LIBC.prctl(38, 0, 0, 0, 0)) + str(LIBC.prctl(39, 0, 0, 0, 0))",
        "-11",
    ),
    "regain a capability": ("str(LIBC.prctl(47, 2, 21, 0, 0))", "-1"),
    "keep capabilities": ("str(os.setuid) and refusal(os.setuid, 0)", "EPERM"),
    "become a group": ("refusal(os.setgroups, [0])", "EPERM"),
    "be looked at by init's ptracer": ("refusal(os.open, '/proc/1/mem', os.O_RDWR)", "EACCES"),
    "type into a terminal": (
        "refusal(__import__('fcntl').ioctl, 0, 0x5412, b'x')",
        "EPERM",
    ),
    "paste into a console": ("refusal(__import__('fcntl').ioctl, 0, 0x541c, b'x')", "EPERM"),
    "a line discipline": ("refusal(__import__('fcntl').ioctl, 0, 0x5423, b'xxxx')", "EPERM"),
    "share pages": ("str(LIBC.madvise(None, 0, 12)) + errno.errorcode[ctypes.get_errno()]",
                    "-1EINVAL"),
}  # fmt: skip


async def test_what_programs_probe_is_refused(attack: Attacker) -> None:
    """One program for all: none of them ends it."""
    told = "\n".join(f"print({name!r}, '->', {code})" for name, (code, _) in REFUSED.items())
    answers = dict(line.split(" -> ") for line in (await attack(told)).told.splitlines())
    assert answers == {name: answer for name, (_, answer) in REFUSED.items()}


async def test_a_denied_call_in_a_thread_ends_the_whole_process(attack: Attacker) -> None:
    code = "in_a_thread(lambda: call('bpf', 0, None, 0))\nprint('the main thread lives')"
    ran = await attack(code)
    assert (ran.kind, ran.out) == ("syscall_denied", "")


async def test_a_denied_call_in_a_child_is_the_childs_end_only(attack: Attacker) -> None:
    ran = await attack("print(in_a_child(lambda: call('bpf', 0, None, 0)))")
    assert ran.told == "-31"


async def test_a_handler_for_sigsys_saves_nobody(attack: Attacker) -> None:
    code = "import signal\nsignal.signal(31, signal.SIG_IGN)\ncall('keyctl', 0, -4, 1)\nprint('on')"
    ran = await attack(code)
    assert (ran.kind, ran.out) == ("syscall_denied", "")


@pytest.mark.skipif("os.uname().machine != 'x86_64'", reason="other ways in exist on x86-64 only")
@pytest.mark.parametrize(
    ("name", "code"),
    {
        # mov eax, 20 (getpid of i386); int 0x80; ret
        "the 32-bit door": "b'\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3'",
        # mov eax, 0x40000027 (getpid of x32); syscall; ret
        "the x32 door": "b'\\xb8\\x27\\0\\0\\x40\\x0f\\x05\\xc3'",
    }.items(),
    ids=lambda value: value if "door" in value else "",
)
async def test_no_other_door_into_the_kernel_is_open(
    attack: Attacker, name: str, code: str
) -> None:
    ran = await attack(
        f"""
import mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write({code})
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
print(ctypes.CFUNCTYPE(ctypes.c_int)(address)())
"""
    )
    if "32-bit" in name:
        assert ran.kind in ("syscall_denied", "signaled") and ran.out == "", ran.stage
    else:
        assert ran.told == "-38", "ENOSYS"
