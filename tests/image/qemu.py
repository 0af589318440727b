"""A VM under qemu, spoken to through a forwarded port, and held by its monitor (QMP)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from tests.client import Client
from tests.e2e.demo import NotAsSaid
from tests.image import drive, kernel
from tests.image.kernel import Boot
from tests.image.telling import CannotRun, answers, free_port

#: Seconds for each thing that a VM may take; an emulated one takes tens of times what a real does.
READY_TIMEOUT, END_TIMEOUT, MONITOR_TIMEOUT, MIGRATE_TIMEOUT = 240.0, 240.0, 60.0, 240.0
#: Seconds in which the initrd is reached, or never will be; under KVM, and under emulation.
KVM_TIMEOUT = 6.0
BOOT_TIMEOUT, BOOTS_MAX = 90.0, 4
MEMORY_MIB = 1024
#: No random instruction, no virtio-rng, no generation id: what a clone shares with the other clones
#: it really shares, unless the daemon does something about it.
CPU = "max,rdrand=off,rdseed=off"


def _argv(boot: Boot, accelerator: str, data: Path, append: str) -> list[str]:
    disks = f"file={boot.root},if=virtio,format=raw,readonly=on"
    network = (
        f"user,id=net,restrict=on,net={drive.PUBLIC_NETWORK}.0/24,host={kernel.GATEWAY},"
        f"guestfwd=tcp:{drive.PUBLIC_NETWORK}.100:{drive.PUBLIC_PORT}-cmd:cat"
    )
    return [
        "qemu-system-x86_64", "-M", "pc", "-accel", accelerator, "-cpu", CPU, "-smp", "2",
        "-m", str(MEMORY_MIB), "-nographic", "-nodefaults", "-no-reboot", "-no-user-config",
        "-kernel", str(boot.kernel), "-initrd", str(boot.initrd),
        "-append", f"console=ttyS0 quiet panic=-1 {append}",
        "-drive", disks, "-drive", f"file={data},if=virtio,format=raw",
        "-netdev", network, "-device", "virtio-net-pci,netdev=net,romfile=",
    ]  # fmt: skip


class Machine(Client):
    """One VM. `incoming`: a snapshot's file to resume instead of booting."""

    def __init__(
        self, boot: Boot, accelerator: str, directory: Path, *, token: str, append: str = "",
        data: Path | None = None, incoming: Path | None = None, patience: float = BOOT_TIMEOUT,
        boots: int = BOOTS_MAX,
    ) -> None:  # fmt: skip
        super().__init__()
        self._boot = boot
        self._accelerator = accelerator
        self._directory = directory
        self._token = token
        self._append = append
        self.data = data or directory / "data.ext4"
        self._incoming = incoming
        self._patience = patience
        self._boots = boots
        self._process: asyncio.subprocess.Process | None = None
        self._monitor: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._began = 0.0

    async def __aenter__(self) -> Machine:
        self._directory.mkdir(exist_ok=True)
        if not self.data.exists():
            await kernel.data_disk(self.data)
        for boot in range(1, self._boots + 1):
            if boot > 1:
                # Under emulation the kernel now and then waits for a timer that never comes, long
                # before anything of ours runs.
                print("    the emulated kernel stood still at boot: power cycled")
            await self._power_on()
            if self._incoming is not None or await self._is_up():
                return self
            await self.kill()
        raise NotAsSaid(f"the kernel does not boot: {self.console[-1500:]}")

    async def _is_up(self) -> bool:
        """Whether the initrd has been reached in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                while "init: up" not in self.console:
                    await asyncio.sleep(0.1)
        return "init: up" in self.console

    async def _power_on(self) -> None:
        port = free_port()
        append = f"RUNNER_TOKEN={self._token} RUNNER_NETWORK=egress {self._append}"
        argv = _argv(self._boot, self._accelerator, self.data, append)
        network = argv.index("-netdev") + 1
        argv[network] += f",hostfwd=tcp:127.0.0.1:{port}-{kernel.ADDRESS}:8080"
        argv += ["-serial", f"file:{self._directory}/console"]
        argv += ["-qmp", f"unix:{self._directory}/monitor,server=on,wait=off"]
        if self._incoming is not None:
            argv += ["-incoming", f"exec:cat {self._incoming}"]
        self._began = time.monotonic()
        self._process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        self.open(f"http://127.0.0.1:{port}", token=self._token)

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    @property
    def console(self) -> str:
        """What the VM has printed."""
        path = self._directory / "console"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    async def ready(self) -> float:
        """Waits until it is; the seconds since it was started."""
        assert self._process is not None
        gone = asyncio.create_task(self._process.wait())
        up = asyncio.create_task(answers(self, 200, within=READY_TIMEOUT))
        await asyncio.wait({gone, up}, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not up.done() or up.exception() is not None:
            up.cancel()
            raise NotAsSaid(f"the VM is not ready: {self.console[-1500:]}")
        return time.monotonic() - self._began

    async def ended(self) -> None:
        """Waits until it has powered itself off."""
        assert self._process is not None
        await asyncio.wait_for(self._process.wait(), END_TIMEOUT)

    async def kill(self) -> None:
        """The power is cut."""
        await self.close()
        if self._monitor is not None:
            self._monitor[1].close()
            self._monitor = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def monitor(self, command: str, **arguments: Any) -> Any:
        """One QMP command; what it returned."""
        async with asyncio.timeout(MONITOR_TIMEOUT):
            if self._monitor is None:
                socket = f"{self._directory}/monitor"
                while not os.path.exists(socket):  # It has only just been started.
                    await asyncio.sleep(0.05)
                self._monitor = await asyncio.open_unix_connection(socket)
                await self._monitor[0].readline()
                await self._say({"execute": "qmp_capabilities"})
            return await self._say({"execute": command, "arguments": arguments})

    async def _say(self, message: dict[str, Any]) -> Any:
        assert self._monitor is not None
        reader, writer = self._monitor
        writer.write(json.dumps(message).encode() + b"\n")
        await writer.drain()
        while True:
            answer = json.loads(await reader.readline())
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise NotAsSaid(f"the monitor: {answer['error']['desc']}")

    async def resume(self) -> None:
        """Goes on where the snapshot was taken, once all of it has been read."""
        async with asyncio.timeout(MIGRATE_TIMEOUT):
            while (await self.monitor("query-status"))["status"] == "inmigrate":
                await asyncio.sleep(0.05)
        await self.monitor("cont")

    async def snapshot(self, path: Path) -> None:
        """Writes memory and devices to a file; the VM stands still from then on."""
        await self.monitor("stop")
        await self.monitor("migrate", uri=f"exec:cat > {path}")
        async with asyncio.timeout(MIGRATE_TIMEOUT):
            while (state := (await self.monitor("query-migrate"))["status"]) != "completed":
                if state in ("failed", "cancelled"):
                    raise NotAsSaid(f"the snapshot {state}")
                await asyncio.sleep(0.1)


async def accelerator(boot: Boot, directory: Path) -> str:
    """kvm where this kernel really boots under it, else tcg. Found out by trying; `CannotRun`."""
    said = ""
    for name, patience, boots in (("kvm", KVM_TIMEOUT, 1), ("tcg", BOOT_TIMEOUT, BOOTS_MAX)):
        probe = Machine(boot, name, directory / f"probe-{name}", token="", append="probe",
                        patience=patience, boots=boots)  # fmt: skip
        try:
            async with probe:
                return name
        except (NotAsSaid, OSError) as error:
            said = str(error)
    raise CannotRun(f"no VM boots, with kvm or without: {said[-300:]}")
