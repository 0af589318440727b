"""Each limit ends what goes over it, and says so in a fact of its own."""

from __future__ import annotations

import os
import signal
import time

from jail.facts import Ending, Facts
from tests.jail.conftest import Runner


async def test_a_program_over_its_memory_is_killed_and_counted(py: Runner) -> None:
    facts: Facts = await py("block = bytearray(400 << 20)")
    assert facts.counters.oom_kills == 1
    assert facts.wait_status == signal.SIGKILL and facts.ended_by is None


async def test_a_grandchild_killed_for_memory_is_counted(sh: Runner) -> None:
    hungry = "/usr/bin/python3 -I -S -c 'block = bytearray(400 << 20)'"
    facts: Facts = await sh(f"({hungry}); exit 0")
    assert facts.counters.oom_kills == 1
    # nsjail and init were not the ones that went.
    assert facts.wait_status == 0 and facts.nsjail_status == 0


async def test_files_in_tmp_count_as_memory(sh: Runner) -> None:
    facts: Facts = await sh("head -c 200M /dev/zero > /tmp/file", memory_bytes=64 << 20)
    assert facts.counters.oom_kills is not None and facts.counters.oom_kills >= 1


async def test_tmp_has_a_size_of_its_own(sh: Runner) -> None:
    facts: Facts = await sh("head -c 9M /dev/zero > /tmp/file", tmp_bytes=8 << 20)
    assert b"No space left" in facts.stderr.kept and facts.counters.oom_kills == 0


async def test_a_fork_bomb_is_denied_and_gone(sh: Runner) -> None:
    facts: Facts = await sh("f() { f | f & }; f; sleep 5", wall_ms=1_000)
    assert facts.counters.pids_denied is not None and facts.counters.pids_denied > 0
    assert facts.proven_empty


async def test_the_profile_gets_all_the_tasks_it_allows(py: Runner) -> None:
    code = """
import os, time
made = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(10); os._exit(0)
        made += 1
except OSError:
    print(made + 1)
"""
    facts: Facts = await py(code, pids=10)
    assert facts.stdout.kept == b"10\n"


async def test_a_flood_on_stdout_is_cut_where_the_limit_is(sh: Runner) -> None:
    facts: Facts = await sh("yes", output_bytes=100_000)
    assert facts.ended_by is Ending.OUTPUT_LIMIT
    assert len(facts.stdout.kept) == 100_000 and facts.stdout.truncated
    assert facts.wall_ns < 2e9


async def test_stdout_up_to_the_limit_is_not_over_it(sh: Runner) -> None:
    facts: Facts = await sh("head -c 100000 /dev/zero", output_bytes=100_000)
    assert facts.ended_by is None and facts.wait_status == 0
    assert len(facts.stdout.kept) == 100_000 and not facts.stdout.truncated


async def test_a_flood_on_stderr_is_dropped_and_the_run_goes_on(sh: Runner) -> None:
    facts: Facts = await sh("head -c 3000000 /dev/zero >&2; echo done", output_bytes=100_000)
    assert facts.ended_by is None and facts.stdout.kept == b"done\n"
    assert (len(facts.stderr.kept), facts.stderr.bytes_total) == (100_000, 3_000_000)


async def test_an_endless_flood_on_stderr_starves_neither_deadline_nor_daemon(
    sh: Runner,
) -> None:
    begun = time.monotonic()
    facts: Facts = await sh("yes >&2", wall_ms=500)
    assert facts.ended_by is Ending.DEADLINE and time.monotonic() - begun < 2
    assert facts.stderr.bytes_total > len(facts.stderr.kept)
    # A pipeful per pause at the most: unhindered, it is hundreds of megabytes in that time.
    assert facts.stderr.bytes_total < 65_536 * 500 * 1.5


async def test_the_deadline_ends_a_sleeper(sh: Runner) -> None:
    facts: Facts = await sh("sleep 30", wall_ms=300)
    assert facts.ended_by is Ending.DEADLINE and facts.wait_status is None
    assert 0.3e9 <= facts.wall_ns < 1.3e9


async def test_the_deadline_ends_a_busy_loop(sh: Runner) -> None:
    facts: Facts = await sh("while :; do :; done", wall_ms=300)
    assert facts.ended_by is Ending.DEADLINE and 0.3e9 <= facts.wall_ns < 1.3e9


async def test_two_threads_share_one_cpu_limit(sh: Runner) -> None:
    spin = "while :; do :; done"
    facts: Facts = await sh(f"({spin}) & {spin}", cpu_ms=400)
    assert facts.ended_by is Ending.CPU_LIMIT
    assert 0.4e9 <= facts.cpu_ns < 0.9e9


async def test_cpu_used_by_the_dead_still_counts(sh: Runner) -> None:
    short = "timeout 0.1 sh -c 'while :; do :; done'"
    facts: Facts = await sh(f"while :; do {short}; done", cpu_ms=400)
    assert facts.ended_by is Ending.CPU_LIMIT


async def test_open_files_and_file_size_are_exact(sh: Runner) -> None:
    facts: Facts = await sh("ulimit -n; ulimit -Hn; ulimit -c", open_files=77)
    assert facts.stdout.kept == b"77\n77\n0\n"
    facts = await sh("head -c 3000 /dev/zero > file; ls -l file", file_size_bytes=2_047)
    assert b" 2047 " in facts.stdout.kept
    facts = await sh("exec head -c 3000 /dev/zero > file2", file_size_bytes=2_047)
    assert facts.wait_status is not None and os.WTERMSIG(facts.wait_status) == signal.SIGXFSZ


async def test_limits_cannot_be_raised_from_inside(sh: Runner) -> None:
    facts: Facts = await sh("(ulimit -n 78) || echo refused", open_files=77)
    assert facts.stdout.kept == b"refused\n"
