"""`make fuzz`: FUZZ_SECONDS (600) of archives, guided by coverage where atheris is installed.

A find is written to a file, and the file's name is an argument that runs it once more.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

SECONDS = float(os.environ.get("FUZZ_SECONDS", "600"))
SEED = int(os.environ.get("FUZZ_SEED") or time.time())
#: A reader that keeps what it reads would get here within seconds.
MEMORY_MAX = 1 << 30
_REPORT_EVERY = 5000


def guided(directory: Path) -> None:
    """libFuzzer's loop. It ends the process, and clears nothing up."""
    import atheris

    with atheris.instrument_imports(include=["runner.checkpoint", "runner.inputs"]):
        import runner.checkpoint.chain
        import runner.inputs.push  # noqa: F401
    from tests.fuzz.mutate import MAX_BYTES, mutated, seeds
    from tests.fuzz.targets import Room

    room, others = Room(directory), seeds()
    corpus = directory / "corpus"
    corpus.mkdir()
    for each in others:
        (corpus / hashlib.sha256(each).hexdigest()[:16]).write_bytes(each)

    def run(data: bytes) -> None:
        room.run(data)
        if room.runs % _REPORT_EVERY == 0:
            print(f"{room.runs} archives, {room.taken} taken", flush=True)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.1:
            return bytes(atheris.Mutate(data, max_size))
        return mutated(data, chance, others)[:max_size]

    options = [
        f"-max_total_time={SECONDS:.0f}",
        f"-max_len={MAX_BYTES}",
        f"-seed={SEED & 0xFFFFFFFF}",
    ]
    options += ["-rss_limit_mb=1024", "-timeout=30", "-print_final_stats=1", "-len_control=0"]
    atheris.Setup([sys.argv[0], str(corpus), *options], run, custom_mutator=mutate)
    atheris.Fuzz()


def blind() -> int:
    """The same without a guide: what was taken, or refused in a new way, is mutated further."""
    from runner.errors import RunnerError
    from tests.fuzz import targets
    from tests.fuzz.mutate import mutated, seeds

    room, pool, chance = targets.Room(), seeds(), random.Random(SEED)
    ends: Counter[str] = Counter()
    told = RunnerError.__init__

    def note(self: RunnerError, detail: str = "", **more: object) -> None:
        told(self, detail, **more)  # type: ignore[arg-type]
        ends[f"{type(self).__name__}: {detail}"] += 1

    RunnerError.__init__ = note  # type: ignore[method-assign,assignment]
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        data = mutated(chance.choice(pool), chance, pool)
        kinds, taken = len(ends), room.taken
        try:
            room.run(data)
        except BaseException:
            name = f"fuzz-find-{hashlib.sha256(data).hexdigest()[:12]}"
            Path(name).write_bytes(data)
            print(f"a find: python -m tests.fuzz {name}", flush=True)
            raise
        if len(ends) > kinds or (room.taken > taken and chance.random() < 0.02):
            pool.append(data)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 < MEMORY_MAX
    room.close()
    print(f"{room.runs} archives, {room.taken} taken, {len(ends)} ways to be refused, seed {SEED}")
    return 0


def replay(paths: list[str]) -> int:
    """Runs finds once more."""
    from tests.fuzz.targets import Room

    room = Room()
    for path in paths:
        room.run(Path(path).read_bytes())
    room.close()
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(replay(sys.argv[1:]))
    if importlib.util.find_spec("atheris") is None:
        sys.exit(blind())
    with tempfile.TemporaryDirectory(prefix="sandbox-runner-fuzz-", dir="/dev/shm") as below:
        child = os.fork()
        if not child:
            guided(Path(below))
        _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))
