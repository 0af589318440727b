"""The seccomp policy as text: its sections, and that every name in it is a call of that machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jail.errors import UnknownMachine
from jail.seccomp import MACHINES, policy_text, select_sections

#: The table that arm64 uses as it is (linux-libc-dev); its entry points are Kafel's names.
GENERIC_TABLE = Path("/usr/include/asm-generic/unistd.h")

#: Where Kafel's arm64 table departs from the header's entry points: named after the number
#: (the entries are fadvise64_64 and ni_syscall), and called otherwise or not there.
KAFEL_NUMBER_NAMES = {"fadvise64", "nfsservctl"}
NOT_KAFEL_ARM64 = {"sendfile64", "sync_file_range", "pkey_alloc", "pkey_free", "pkey_mprotect"}


def named_calls(text: str) -> set[str]:
    """The calls a policy names: identifiers in its action blocks, outside argument filters."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text)
    names: set[str] = set()
    for block in re.findall(
        r"(?:ALLOW|KILL_PROCESS|ERRNO\([^)]*\))\s*\{((?:[^{}]|\{[^{}]*\})*)\}", text
    ):
        names |= set(re.findall(r"[a-z_]\w*", re.sub(r"\{[^{}]*\}", "", block)))
    return names


def constants(text: str) -> dict[str, int]:
    return {n: int(v, 0) for n, v in re.findall(r"^#define (\w+_arm64) (\d+)$", text, re.MULTILINE)}


def test_only_the_sections_of_the_machine_are_kept() -> None:
    source = "all\n// ONLY x86_64\nhere\n// END\n// ONLY aarch64\nthere\n// END\nlast\n"
    assert select_sections(source, "x86_64") == "all\nhere\nlast\n"
    assert select_sections(source, "aarch64") == "all\nthere\nlast\n"


@pytest.mark.parametrize(
    "source",
    [
        "// ONLY x86_64\nhere\n",
        "here\n// END\n",
        "// ONLY x86_64\n// ONLY aarch64\n// END\n",
        "// ONLY x86\nhere\n// END\n",
    ],
    ids=["unended", "unopened", "nested", "unknown"],
)
def test_a_broken_section_is_never_rendered(source: str) -> None:
    with pytest.raises(ValueError, match=r"line \d|section"):
        select_sections(source, "x86_64")


def test_an_unknown_machine_is_named_in_the_error() -> None:
    with pytest.raises(UnknownMachine, match=r"'riscv64'.*x86_64, aarch64"):
        policy_text("riscv64")


def test_the_policies_of_all_machines_differ_only_in_legacy_names() -> None:
    x86, arm = named_calls(policy_text("x86_64")), named_calls(policy_text("aarch64"))
    assert len(arm) > 250
    assert {name for name in arm - x86 if not name.endswith("_arm64")} == set()
    assert {"open", "fork", "newstat", "arch_prctl", "modify_ldt"} <= x86 - arm


@pytest.mark.parametrize("machine", MACHINES)
def test_nothing_is_both_killed_and_allowed(machine: str) -> None:
    text = policy_text(machine)
    killed = {
        name for block in re.findall(r"KILL_PROCESS \{[^}]*\}", text) for name in named_calls(block)
    }
    allowed = text[text.index("POLICY allowed ") :]
    assert killed
    assert killed & named_calls(allowed) == set()


@pytest.mark.skipif(not GENERIC_TABLE.exists(), reason="needs the kernel's headers: linux-libc-dev")
def test_every_arm64_name_is_an_entry_point_of_the_arm64_table() -> None:
    header = GENERIC_TABLE.read_text()
    # __SYSCALL(__NR_x, sys_x), __SC_COMP(_nr, _sys, _compat), __SC_3264(_nr, _32, _64),
    # __SC_COMP_3264(_nr, _32, _64, _compat): the entry of a 64-bit kernel is the one Kafel names.
    entry_points = set(re.findall(r"__SYSCALL\(\w+,\s*sys_(\w+)\)", header))
    entry_points |= set(re.findall(r"__SC_COMP\(\w+,\s*sys_(\w+),", header))
    entry_points |= set(
        re.findall(r"__SC_(?:COMP_)?3264\(\w+,\s*sys_\w+,\s*\\?\s*sys_(\w+)", header)
    )
    assert len(entry_points) > 280
    arm = policy_text("aarch64")
    by_number = constants(arm)
    assert {n for n in named_calls(arm) if n not in by_number} - entry_points == KAFEL_NUMBER_NAMES
    assert named_calls(arm) & NOT_KAFEL_ARM64 == set()
    for name, number in by_number.items():
        assert re.search(rf"#define __NR(3264)?_{name.removesuffix('_arm64')} {number}\n", header)
