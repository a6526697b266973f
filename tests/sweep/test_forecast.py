"""When cohorts in flight will be done, and which has to give way."""

import pytest

import mixerscope as ms
from mixerscope.sweep import forecast as forecast_module
from mixerscope.sweep.cohorts import group
from mixerscope.sweep.forecast import MARGIN, Forecast, OutOfTime
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
    monkeypatch.setattr(forecast_module, "time", clock)
    return clock


@pytest.fixture
def cohorts():
    return group(ms.Sweep(base=BASE, vary={"model.width": [8, 16, 32]}).runs())


def test_who_stays_gets_what_the_others_had(clock, cohorts):
    forecast = Forecast(Sharing({}), None)
    # Thirty, sixty and ninety seconds beside two others are ten, twenty and thirty alone.
    times = [(90.0, cohorts[0]), (30.0, cohorts[1]), (60.0, cohorts[2])]
    assert forecast._finishing_times(times) == pytest.approx([60.0, 30.0, 50.0])


def test_a_cohort_starts_only_if_all_will_be_done_in_time(clock, cohorts):
    forecast = Forecast(Sharing({8: 60.0, 16: 30.0, 32: 15.0}), clock.now + 10 + MARGIN * 90)
    forecast.started(cohorts[0])
    clock.now += 10  # 50 seconds of work are left, and 90 seconds of time besides what is kept to spare
    assert forecast.fits(cohorts[1])
    forecast.started(cohorts[1])
    assert not forecast.fits(cohorts[2]), "50 + 30 + 15 > 90"
    forecast.deadline += MARGIN * 5.1
    assert forecast.fits(cohorts[2])
    forecast.deadline = None
    assert forecast.fits(cohorts[2])


def progress(running, clock, rate, seconds, total=1000):
    for _ in range(int(seconds)):
        clock.now += 1
        running.progressed(clock.now, "train", running.done + rate, total)


def test_the_last_to_be_done_gives_way_if_it_is_late(clock, cohorts):
    forecast = Forecast(Sharing({8: 50.0, 16: 50.0}), clock.now + 100)
    slow, quick = forecast.started(cohorts[0]), forecast.started(cohorts[1])
    for _ in range(8):
        clock.now += 1
        slow.progressed(clock.now, "train", slow.done + 1, 150)
        quick.progressed(clock.now, "train", quick.done + 2, 150)
    # Beside each other 142 and 67 seconds; the slow one alone after 67 is twice as quick: 67 + 75 / 2 = 104.5.
    assert forecast.check(quick) is None
    assert forecast.check(slow) == OutOfTime("would have ended 12 s too late")
    forecast.ended(slow)
    assert forecast.check(quick) is None


def test_nothing_is_judged_before_it_was_measured(clock, cohorts):
    forecast = Forecast(Sharing({8: 1.0}), clock.now + 5)
    running = forecast.started(cohorts[0])
    progress(running, clock, 1, 2)
    assert forecast.check(running) is None
    progress(running, clock, 1, 3)
    assert isinstance(forecast.check(running), OutOfTime)


def test_after_the_deadline_nothing_more_is_measured_and_grids_are_finished(clock, cohorts):
    forecast = Forecast(Sharing({8: 20.0, 16: 1.0}), clock.now + 5)
    running, grid = forecast.started(cohorts[0]), forecast.started(cohorts[1])
    clock.now += 6  # all of it went into building
    grid.progressed(clock.now, "patch", 1, 2)
    assert forecast.check(grid) is None
    running.progressed(clock.now, "train", 1, 1000)
    assert isinstance(forecast.check(running), OutOfTime)


def test_the_rate_is_that_of_the_latest_seconds(clock, cohorts):
    running = Forecast(Sharing({8: 1.0}), None).started(cohorts[0])
    progress(running, clock, 1, 20)
    assert running.rate() == pytest.approx(1)
    progress(running, clock, 5, 20)
    assert running.rate() == pytest.approx(5)


def test_work_is_what_it_would_have_taken_alone(clock, cohorts):
    forecast = Forecast(Sharing({}), None)
    first = forecast.started(cohorts[0])
    clock.now += 10
    second = forecast.started(cohorts[1])
    clock.now += 10
    forecast.ended(second)
    clock.now += 10
    forecast.ended(first)
    assert (first.work, second.work) == (25, 5)
    assert (sum(first.seconds.values()), sum(second.seconds.values())) == (30, 10)
