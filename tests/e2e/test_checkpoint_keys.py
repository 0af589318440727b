"""Which key seals a checkpoint, and who can therefore restore it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conftest import SESSION
from tests.harness import Daemon, daemons
from tests.leftovers import TEST_UID

pytestmark = pytest.mark.asyncio(loop_scope="module")

GIVEN, OTHER = "G" * 43, "H" * 43
MASTER = "M" * 43


@dataclass(frozen=True)
class Fleet:
    """Two runners of a deployment with a key, and two that have only that of their disk."""

    keyed: Daemon
    keyed_too: Daemon
    bare: Daemon
    bare_too: Daemon


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    root: Path = tmp_path_factory.mktemp("fleet")
    uid = {"RUNNER_SESSION_UID": str(TEST_UID)}
    async with (
        daemons(root, "keyed", "keyed-too", **uid, RUNNER_SIDECAR_KEY=MASTER) as keyed,
        daemons(root, "bare", "bare-too", **uid) as bare,
    ):
        for daemon in (*keyed, *bare):
            await daemon.execute("open('x', 'w').write('kept')", session=SESSION)
        yield Fleet(*keyed, *bare)


def header(key: str | None) -> dict[str, str]:
    return {} if key is None else {"X-Sidecar-Key": key}


#: saved by, with the header; restored by, with the header; is it taken
WAYS = {
    "the deployment's key on another of its disks": ("keyed", None, "keyed_too", None, True),
    "the given key anywhere": ("bare", GIVEN, "bare_too", GIVEN, True),
    "the given key before the deployment's": ("keyed", GIVEN, "bare", GIVEN, True),
    "the given key, restored with another": ("bare", GIVEN, "bare_too", OTHER, False),
    "the given key, restored without": ("keyed", GIVEN, "keyed_too", None, False),
    "the deployment's key, restored with one given": ("keyed", None, "keyed_too", GIVEN, False),
    "the deployment's key where there is none": ("keyed", None, "bare", None, False),
    "the disk's key on its own disk": ("bare", None, "bare", None, True),
    "the disk's key on another disk": ("bare", None, "bare_too", None, False),
}


@pytest.mark.parametrize("name", WAYS)
async def test_an_archive_is_taken_by_who_has_its_key(fleet: Fleet, name: str) -> None:
    saver, saved_with, restorer, restored_with, taken = WAYS[name]
    source: Daemon = getattr(fleet, saver)
    target: Daemon = getattr(fleet, restorer)
    await source.execute("open('x', 'w').write('kept')", session=SESSION)
    archive = await source.checkpoint(SESSION, headers=header(saved_with))
    assert archive.status == 200
    reply = await target.restore(SESSION, archive.body, headers=header(restored_with))
    if taken:
        assert reply.status == 200, reply.body
        assert (await target.file(SESSION, "x")).body == b"kept"
    else:
        assert (reply.status, reply.json["error"]) == (422, "checkpoint_unauthentic")
        assert await target.paths(SESSION) == []


async def test_a_disks_own_key_says_that_it_is_good_for_one_disk_only(fleet: Fleet) -> None:
    await fleet.bare.execute("open('x', 'w').write('kept')", session=SESSION)
    archive = (await fleet.bare.checkpoint(SESSION)).body
    error = (await fleet.bare_too.restore(SESSION, archive)).json
    assert error["reason"] == "disk_key"
    assert "this disk" in error["message"]
    assert "X-Sidecar-Key" in error["message"] and "RUNNER_SIDECAR_KEY" in error["message"]


async def test_a_key_is_padded_or_not(fleet: Fleet) -> None:
    archive = (await fleet.bare.checkpoint(SESSION, headers=header(GIVEN))).body
    reply = await fleet.bare_too.restore(SESSION, archive, headers=header(f"{GIVEN}="))
    assert reply.status == 200


async def test_no_key_is_ever_said_or_logged(fleet: Fleet) -> None:
    reply = await fleet.keyed.checkpoint(SESSION, headers=header(GIVEN))
    said = repr(reply.headers) + repr(fleet.keyed.log)
    assert GIVEN not in said and MASTER not in said
