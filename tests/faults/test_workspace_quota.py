"""A workspace that may only grow so large, where the kernel has no quota: measured, and told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon

MIB = 1 << 20
GROW = "head -c 8M /dev/zero > big"
#: One file for each 4 KiB of the limit is allowed.
MANY = "for n in $(seq 1100); do : > f-$n; done"


@pytest.fixture
async def limited(start: Any) -> AsyncIterator[Daemon]:
    daemon: Daemon = await start(RUNNER_WORKSPACE_MAX_BYTES="4MiB")
    # tmpfs has a quota only where it was mounted with one.
    assert (await daemon.get("/health")).json["limits"]["workspace"] == "advisory"
    yield daemon


async def run(daemon: Daemon, code: str, session: str | None = SESSION) -> Any:
    return await daemon.execute(code, language="bash", session=session)


async def test_without_a_limit_health_says_nothing_of_it(daemon: Daemon) -> None:
    assert "workspace" not in (await daemon.get("/health")).json["limits"]


@pytest.mark.parametrize(("grow", "names"), [(GROW, ["big"]), (MANY, None)])
async def test_a_program_that_fails_over_it_is_told_and_the_next_waits_for_room(
    limited: Daemon, grow: str, names: list[str] | None
) -> None:
    outcome = (await run(limited, f"{grow}; exit 1")).json["run"]["outcome"]
    assert (outcome["kind"], outcome["fault"]) == ("storage_full", "limit")
    refused = await run(limited, "echo x > more")
    assert (refused.status, refused.json["error"]) == (507, "insufficient_storage")
    assert (refused.json["reason"], refused.json["recycle"]) == ("workspace_full", False)
    assert "more" not in await limited.paths(SESSION)
    # It is all still there, to be saved, and to be made smaller.
    assert (await limited.checkpoint(SESSION)).status == 200
    for name in names or [f"f-{n}" for n in range(1, 1100)]:
        gone = await limited.request("DELETE", f"/session/files/{name}", session=SESSION)
        assert gone.status == 204
    assert (await run(limited, "echo fine")).json["run"]["stdout"] == "fine\n"


async def test_a_program_that_ends_well_over_it_has_ended_well(limited: Daemon) -> None:
    assert (await run(limited, GROW)).json["run"]["outcome"]["kind"] == "exited"
    assert (await run(limited, "true")).status == 507


async def test_a_file_that_does_not_fit_is_not_put(limited: Daemon) -> None:
    await run(limited, "head -c 2M /dev/zero > half")
    for size, status in ((3 * MIB, 507), (MIB, 201)):
        reply = await limited.request(
            "PUT", "/session/files/put", session=SESSION, data=bytes(size)
        )
        assert reply.status == status
    assert await limited.paths(SESSION) == ["half", "main", "put"]


async def test_a_job_has_the_limit_for_itself(limited: Daemon) -> None:
    outcome = (await run(limited, f"{GROW}; exit 1", session=None)).json["run"]["outcome"]
    assert outcome["kind"] == "storage_full"
    assert (await run(limited, "true", session=None)).json["run"]["outcome"]["kind"] == "exited"
