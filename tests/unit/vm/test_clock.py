"""Stepping the wall clock, on clocks of the test's own: the machine's is never touched."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from runner.vm.clock import EARLIEST_NS, TOLERATED_NS, Clocks, correct, parse_time

MS = 1_000_000
NOW = EARLIEST_NS + 10**18


@dataclass
class Fake:
    """A wall clock that is `off`, and a monotonic one that moves 1 ms at each look."""

    off: int
    permitted: bool = True
    sticks: bool = True
    hypervisor_off: int | None = None
    steps: list[int] = field(default_factory=list)
    ticks: int = 0

    def _true(self) -> int:
        self.ticks += MS
        return NOW + self.ticks

    def _set(self, to_ns: int) -> None:
        if not self.permitted:
            raise PermissionError(1, "no")
        self.steps.append(to_ns)
        if self.sticks:
            self.off += to_ns - (self._true() + self.off)

    @property
    def clocks(self) -> Clocks:
        def hypervisor() -> int | None:
            return None if self.hypervisor_off is None else self._true() + self.hypervisor_off

        return Clocks(
            wall=lambda: self._true() + self.off,
            monotonic=lambda: self._true() - NOW,
            hypervisor=hypervisor,
            set_wall=self._set,
        )

    def correct(self, given_ns: int | None) -> tuple[bool, str]:
        step = correct(given_ns, self.clocks)
        assert step.name == "clock"
        return step.done, step.detail


@pytest.mark.parametrize("off_ms", [-3_600_000, -150, 150, 3_600_000])
def test_a_clock_that_is_off_is_stepped_and_looked_at_again(off_ms: int) -> None:
    fake = Fake(off=off_ms * MS)
    done, detail = fake.correct(NOW)
    assert done
    assert detail.endswith("ms (request)")
    assert len(fake.steps) == 1
    assert abs(fake.off) < TOLERATED_NS


@pytest.mark.parametrize("off_ms", [-95, -1, 0, 1, 90])
def test_a_clock_that_is_about_right_is_left_alone(off_ms: int) -> None:
    fake = Fake(off=off_ms * MS)
    done, detail = fake.correct(NOW)
    assert (done, fake.steps) == (True, [])
    assert "left alone" in detail


def test_the_time_that_it_takes_is_not_lost() -> None:
    """What was given was true when it was given; it is stepped to what is true by then."""
    fake = Fake(off=-3_600_000 * MS)
    fake.correct(NOW)
    assert fake.steps[0] > NOW


def test_the_hypervisor_is_believed_before_the_request() -> None:
    fake = Fake(off=-(10**12), hypervisor_off=0)
    done, detail = fake.correct(NOW + 10**15)
    assert done
    assert detail.endswith("(hypervisor)")
    assert abs(fake.off) < TOLERATED_NS


def test_without_a_permission_it_says_so_and_is_not_done() -> None:
    done, detail = Fake(off=-(10**12), permitted=False).correct(NOW)
    assert not done
    assert detail.endswith("not permitted")


def test_a_step_that_changed_nothing_is_not_done() -> None:
    done, detail = Fake(off=-(10**12), sticks=False).correct(NOW)
    assert not done
    assert "is by -" in detail


@pytest.mark.parametrize("given", [None, "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_a_time_that_cannot_be_is_not_trusted(given: str | None) -> None:
    fake = Fake(off=0)
    done, detail = fake.correct(None if given is None else parse_time(given))
    assert (done, detail) == (False, "no trustworthy time was given")
    assert fake.steps == []


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("2026-11-30T10:00:00Z", 1_796_032_800 * 10**9),
        ("2026-11-30T12:00:00.250+02:00", 1_796_032_800 * 10**9 + 250 * MS),
        ("2026-11-30T10:00:00", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_a_time_is_rfc_3339_with_an_offset(text: str, ns: int | None) -> None:
    assert parse_time(text) == ns
