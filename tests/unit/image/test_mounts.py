"""What the mount table of a container says, on tables of real ones."""

from __future__ import annotations

import pytest

from image.mounts import hidden_proc, parse, unusable_cgroups

PLAIN = "22 1 0:20 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw\n"
MASKED = PLAIN + (
    "58 22 0:48 /sys /proc/sys ro,nosuid,nodev,noexec,relatime - proc proc rw\n"
    "60 22 0:49 /null /proc/keys rw,nosuid,noexec - tmpfs tmpfs rw,size=65536k,mode=755\n"
)
OWN_IDS = "         0          0 4294967295\n"
MAPPED_IDS = "         0     100000      65536\n"
V2 = "30 1 0:26 / /sys/fs/cgroup {},nosuid,nodev,noexec,relatime - cgroup2 cgroup2 rw\n"
V1 = "50 1 0:32 /a /sys/fs/cgroup/memory {},nosuid - cgroup cgroup rw,memory\n"


def test_masks_are_in_the_way_only_in_a_user_namespace() -> None:
    assert hidden_proc(parse(MASKED), OWN_IDS) is None
    assert hidden_proc(parse(PLAIN), MAPPED_IDS) is None
    lack = hidden_proc(parse(MASKED), MAPPED_IDS)
    assert lack is not None and lack.what == "hidden behind mounts: /proc/keys, /proc/sys"
    assert "unmask=ALL" in lack.remedy


@pytest.mark.parametrize(
    ("table", "what"),
    [
        (PLAIN, "none is mounted"),
        (V2.format("ro"), "mounted read-only"),
        (V1.format("ro") + V2.format("ro"), "mounted read-only"),
        (V1.format("ro") + V2.format("rw"), "were not handed down"),
        (V2.format("rw"), "were not handed down"),
    ],
)
def test_what_is_wrong_with_the_cgroups_is_named(table: str, what: str) -> None:
    assert what in unusable_cgroups(parse(table)).what
