"""The configuration says what the profile says, for any byte, as nsjail itself reads it."""

from __future__ import annotations

import re
import signal
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jail.cgroup import Cgroups
from jail.config import limit_arguments, quoted, render
from jail.facts import Enforcement
from jail.hierarchy import Parents
from jail.host import JailHost
from jail.process import Jail
from jail.profile import Network
from tests.jail.conftest import ProfileMaker

#: Any byte but NUL, as Python passes it around.
TEXT = st.binary(max_size=60).map(
    lambda raw: raw.replace(b"\0", b"").decode("utf-8", "surrogateescape")
)
NAMES = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", min_size=1, max_size=8)


@given(st.binary())
def test_quoting_is_plain_ascii_and_can_be_undone(raw: bytes) -> None:
    text = quoted(raw)
    assert text.isascii() and text.isprintable() and '"' not in text[1:-1]
    undone = re.sub(
        rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), text[1:-1].encode("ascii")
    )
    assert undone == raw


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(arguments=st.lists(TEXT, max_size=5), env=st.dictionaries(NAMES, TEXT, max_size=5))
async def test_arguments_and_environment_arrive_byte_for_byte(
    host: JailHost, profile: ProfileMaker, arguments: list[str], env: dict[str, str]
) -> None:
    shown = profile("/usr/bin/cat", "/proc/self/cmdline", "/proc/self/environ", env=env)
    printed = (await Jail(host, shown).run()).stdout.kept
    assert printed.endswith(nul_ended([f"{name}={value}" for name, value in env.items()]))
    given_ = profile("/usr/bin/printf", "%s\\0", *(arguments or ["x"]))
    printed = (await Jail(host, given_).run()).stdout.kept
    assert printed == nul_ended(arguments or ["x"])


def nul_ended(texts: list[str]) -> bytes:
    return b"".join(text.encode("utf-8", "surrogateescape") + b"\0" for text in texts)


async def test_a_configuration_larger_than_a_pipe_gets_through(
    host: JailHost, profile: ProfileMaker
) -> None:
    arguments = ["x" * 100_000] * 8
    facts = await Jail(
        host, profile("/bin/sh", "-c", 'shift 7; printf %s "$1" | wc -c', "sh", *arguments)
    ).run()
    assert facts.stdout.kept.strip() == b"100000", facts


def test_the_whole_configuration_is_readable(host: JailHost, profile: ProfileMaker) -> None:
    text = render(profile("prog", "a b"), host.fixed, report_fd=9).decode()
    assert "clone_newuser: false" in text and "clone_newnet: true" in text
    assert 'arg: "9"' in text and 'arg: "prog" arg: "a b"' in text
    data = next(line for line in text.splitlines() if 'dst: "/mnt/data"' in line)
    for flag in ("is_bind: true", "rw: true", "nosuid: true", "nodev: true", "noexec: false"):
        assert flag in data


def test_with_egress_the_namespace_is_not_nsjails_to_make(
    host: JailHost, profile: ProfileMaker
) -> None:
    connected = profile("x", network=Network.EGRESS)
    text = render(connected, host.fixed, report_fd=9, resolv_conf="nameserver 192.0.2.1\n").decode()
    assert "clone_newnet: false" in text
    assert 'src_content: "nameserver 192.0.2.1\\012"' in text
    # Not started in a network: it makes an empty one and never stays in the host's.
    assert "clone_newnet: true" in render(connected, host.fixed, report_fd=9).decode()


def test_without_controllers_rlimits_hold_what_they_can(profile: ProfileMaker) -> None:
    limited = profile("x", cpu_ms=1_500, memory_bytes=64 << 20, pids=5)
    enforced = limit_arguments(limited, advisory=False)
    advisory = limit_arguments(limited, advisory=True)
    assert "cpu:3:4" in enforced and not any(each.startswith("as:") for each in enforced)
    assert {"cpu:2:3", f"as:{64 << 20}:{64 << 20}", "nproc:5:5"} <= set(advisory)


async def test_advisory_limits_work_without_any_cgroup(
    host: JailHost, profile: ProfileMaker
) -> None:
    cgroups, fixed = host.cgroups, host.fixed
    host.cgroups = Cgroups(Parents(), Enforcement.ADVISORY)
    host.fixed = replace(fixed, advisory=True)
    try:
        plain = await Jail(host, profile("sh", "-c", "exit 3")).run()
        code = "block = bytearray(400 << 20)"
        hungry = await Jail(host, profile("/usr/bin/python3", "-I", "-S", "-c", code)).run()
        spin = "while :; do :; done"
        busy = await Jail(host, profile("sh", "-c", spin, cpu_ms=1_000)).run()
        idle = await Jail(
            host, profile("sh", "-c", "setsid sleep 60 & sleep 60", wall_ms=200)
        ).run()
    finally:
        host.cgroups, host.fixed = cgroups, fixed
    assert (plain.wait_status, plain.enforcement) == (3 << 8, Enforcement.ADVISORY)
    assert plain.proven_empty and plain.memory_peak_bytes > 0
    assert b"MemoryError" in hungry.stderr.kept and hungry.counters.oom_kills is None
    # Not by its own count of CPU time: the kernel's rlimit counts ticks, and steals some in a VM.
    assert busy.wait_status == signal.SIGXCPU and busy.wall_ns < 3.5e9
    assert idle.ended_by == "deadline" and idle.proven_empty
