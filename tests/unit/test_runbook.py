"""The runbook leaves out no error, no check and no metric, and makes none up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runner.errors import RunnerError
from runner.metrics import Metrics
from runner.session.lifecycle import State
from runner.session.record import Dirty

ROOT = Path(__file__).resolve().parent.parent.parent
RUNBOOK = (ROOT / "docs/runbook.md").read_text("utf-8")


def section(title: str) -> str:
    return RUNBOOK.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def classes(of: type[RunnerError]) -> set[type[RunnerError]]:
    return {of}.union(*(classes(each) for each in of.__subclasses__()))


def test_every_error_has_its_row_with_its_status() -> None:
    written = set(re.findall(r"^\| `(\w+)` \| (\d+) \|", section("Errors"), re.MULTILINE))
    raised = {
        (each.code, str(each.status)) for each in classes(RunnerError) if "code" in vars(each)
    }
    assert written == raised


def test_every_reason_to_be_dirty_is_explained() -> None:
    row = next(line for line in RUNBOOK.splitlines() if "`session_workspace_dirty`" in line)
    assert {reason.value for reason in Dirty} <= set(re.findall(r"`(\w+)`", row))


def test_every_health_check_is_explained() -> None:
    """A check's name is the first argument of the function that makes it."""
    made: set[str] = set()
    for name in ("image/checks.py", "image/probe.py", "image/doctor.py", "runner/health.py"):
        text = (ROOT / name).read_text("utf-8")
        made |= set(re.findall(r'\b(?:ok|degraded|failed)\(\s*"(\w+)"', text))
    rows = re.findall(r"^\| (`.*?) \|", section("Health checks"), re.MULTILINE)
    assert len(made) > 15
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == made


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"`((?:runner|process)_\w+)", section("Alerts"))))
)
async def test_every_metric_of_an_alert_is_there(name: str) -> None:
    metrics = Metrics()
    metrics.request(method="GET", route="/health", status=200, seconds=0.1)
    metrics.outcome(stage="run", kind="exited", fault="none")
    exposed = metrics.render(State.READY, terminals=0).decode()
    assert re.search(rf"^{name}(_bucket)?[{{ ]", exposed, re.MULTILINE)
