"""When cohorts in flight will have landed, and who has to give way."""

import pytest

import mixerscope as ms
from mixerscope.sweep import flight as flight_module
from mixerscope.sweep import group
from mixerscope.sweep.flight import MARGIN, Company, OutOfTime
from tests.sweep.conftest import BASE


class Sharing:
    """Estimates of a device whose whole speed is shared out: two at once are as quick as one after the other."""

    def __init__(self, seconds):
        self.seconds = seconds

    def alone(self, cohort):
        return self.seconds[cohort.first.model.width]

    def staging(self, cohort):
        return 0.0

    def slowdown(self, cohort, in_flight):
        return float(in_flight)


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(flight_module, "time", clock)
    return clock


@pytest.fixture
def cohorts():
    return group(ms.Sweep(base=BASE, vary={"model.width": [8, 16, 32]}).runs())


def test_who_stays_gets_what_the_others_had(clock, cohorts):
    company = Company(Sharing({}), None)
    # Thirty, sixty and ninety seconds beside two others are ten, twenty and thirty alone.
    times = [(90.0, cohorts[0]), (30.0, cohorts[1]), (60.0, cohorts[2])]
    assert company._landings(times) == pytest.approx([60.0, 30.0, 50.0])


def test_a_cohort_joins_only_if_all_land_in_time(clock, cohorts):
    company = Company(Sharing({8: 60.0, 16: 30.0, 32: 15.0}), clock.now + 10 + MARGIN * 90)
    company.join(cohorts[0])
    clock.now += 10  # 50 seconds of work are left, and 90 seconds of time besides what is kept to spare
    assert company.fits(cohorts[1])
    company.join(cohorts[1])
    assert not company.fits(cohorts[2]), "50 + 30 + 15 > 90"
    company.deadline += MARGIN * 5.1
    assert company.fits(cohorts[2])
    company.deadline = None
    assert company.fits(cohorts[2])


def progress(flight, clock, rate, seconds, total=1000):
    for _ in range(int(seconds)):
        clock.now += 1
        flight.progressed(clock.now, "train", flight.done + rate, total)


def test_the_last_to_land_gives_way_if_it_is_late(clock, cohorts):
    company = Company(Sharing({8: 50.0, 16: 50.0}), clock.now + 100)
    slow, quick = company.join(cohorts[0]), company.join(cohorts[1])
    for _ in range(8):
        clock.now += 1
        slow.progressed(clock.now, "train", slow.done + 1, 150)
        quick.progressed(clock.now, "train", quick.done + 2, 150)
    # Beside each other 142 and 67 seconds; the slow one alone after 67 is twice as quick: 67 + 75 / 2 = 104.5.
    assert company.check(quick) is None
    assert company.check(slow) == OutOfTime("would have ended 12 s too late")
    company.leave(slow)
    assert company.check(quick) is None


def test_nothing_is_judged_before_it_was_measured(clock, cohorts):
    company = Company(Sharing({8: 1.0}), clock.now + 5)
    flight = company.join(cohorts[0])
    progress(flight, clock, 1, 2)
    assert company.check(flight) is None
    progress(flight, clock, 1, 3)
    assert isinstance(company.check(flight), OutOfTime)


def test_after_the_deadline_nothing_more_is_measured_and_grids_are_finished(clock, cohorts):
    company = Company(Sharing({8: 20.0, 16: 1.0}), clock.now + 5)
    flight, grid = company.join(cohorts[0]), company.join(cohorts[1])
    clock.now += 6  # all of it went into building
    grid.progressed(clock.now, "patch", 1, 2)
    assert company.check(grid) is None
    flight.progressed(clock.now, "train", 1, 1000)
    assert isinstance(company.check(flight), OutOfTime)


def test_the_rate_is_that_of_the_latest_seconds(clock, cohorts):
    flight = Company(Sharing({8: 1.0}), None).join(cohorts[0])
    progress(flight, clock, 1, 20)
    assert flight.rate() == pytest.approx(1)
    progress(flight, clock, 5, 20)
    assert flight.rate() == pytest.approx(5)


def test_work_is_what_it_would_have_taken_alone(clock, cohorts):
    company = Company(Sharing({}), None)
    first = company.join(cohorts[0])
    clock.now += 10
    second = company.join(cohorts[1])
    clock.now += 10
    company.leave(second)
    clock.now += 10
    company.leave(first)
    assert (first.work, second.work) == (25, 5)
    assert (sum(first.seconds.values()), sum(second.seconds.values())) == (30, 10)
