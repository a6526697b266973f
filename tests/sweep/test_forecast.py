"""When cohorts in flight will be done, and which has to give way."""

import math

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


def beside(clock, seconds, *rates):
    """Lets cohorts train beside each other: `rates` are pairs of one and its steps a second."""
    for _ in range(seconds):
        clock.now += 1
        for running, rate in rates:
            running.progressed(clock.now, "train", running.done + rate, running.total)


def begin_training(clock, forecast, cohorts, total):
    found = [forecast.started(cohort) for cohort in cohorts]
    for running in found:
        running.progressed(clock.now, "train", 0, total)
    return found


def test_the_last_to_be_done_gives_way_if_it_is_late(clock, cohorts):
    forecast = Forecast(Sharing({8: 50.0, 16: 50.0}), clock.now + 100)
    slow, quick = begin_training(clock, forecast, cohorts[:2], 170)
    beside(clock, 10, (slow, 1), (quick, 2))
    # Beside each other 160 and 75 seconds; the slow one alone after 75 is twice as quick: 75 + 85 / 2 = 117.5.
    assert forecast.check(quick) is None
    assert forecast.check(slow) == OutOfTime("would have ended 28 s too late")
    forecast.ended(slow)
    beside(clock, 10, (quick, 2))
    assert forecast.check(quick) is None


def test_who_may_still_be_done_in_time_is_not_given_up(clock, cohorts):
    forecast = Forecast(Sharing({8: 100.0}), clock.now + 110)
    [running] = begin_training(clock, forecast, cohorts[:1], 120)
    beside(clock, 10, (running, 1))
    assert running.left(clock.now, forecast.estimator, 1) == 110, "10 s too late, of 100 that are left"
    assert forecast.check(running) is None
    beside(clock, 30, (running, 1))
    assert forecast.check(running) is None
    beside(clock, 10, (running, 1))  # 70 seconds of work in 60 cannot be made up for
    assert forecast.check(running) == OutOfTime("would have ended 10 s too late")


def test_nothing_is_judged_before_it_was_measured(clock, cohorts):
    forecast = Forecast(Sharing({8: 1.0}), clock.now + 15)
    running = forecast.started(cohorts[0])
    progress(running, clock, 1, 10)
    assert forecast.check(running) is None
    progress(running, clock, 1, 1)
    assert isinstance(forecast.check(running), OutOfTime)


@pytest.mark.parametrize("change", ["starts", "ends", "is built", "patches"])
def test_nothing_is_judged_by_rates_that_have_just_changed(clock, cohorts, change):
    forecast = Forecast(Sharing({8: 1.0, 16: 10.0, 32: 10.0}), clock.now + 300)
    slow, other = begin_training(clock, forecast, cohorts[:2], 1000)
    beside(clock, 20, (slow, 1), (other, 100))
    assert isinstance(forecast.check(slow), OutOfTime)
    if change == "starts":
        forecast.started(cohorts[2]).progressed(clock.now, "train", 0, 1000)
    elif change == "ends":
        forecast.ended(other)
    elif change == "is built":
        forecast.started(cohorts[2])
    else:
        other.progressed(clock.now, "patch", 0, 10)
    beside(clock, 9, (slow, 1))
    assert forecast.check(slow) is None
    beside(clock, 30, (slow, 1))
    assert (forecast.check(slow) is None) == (change == "is built")


class Chip(Sharing):
    """A device on which four cohorts at once are 1.2 times as quick as one after another."""

    def slowdown(self, cohort, in_flight):
        return in_flight / (1 + 0.2 * math.log(in_flight, 4))

    def staging(self, cohort):
        return 10.0


def test_a_cohort_that_was_slow_at_first_keeps_its_place(clock):
    """As in a call on a GPU that was lent until second 490: the slow one was given up at second 270, since at its rate
    of then it would have ended 9 s too late, and nothing else took its place."""
    steps, began = 50_016, clock.now
    cohorts = group(ms.Sweep(base=BASE, vary={"model.width": [8, 16, 32, 64]}).runs())
    forecast = Forecast(Chip({8: 174.0, 16: 70.0, 32: 70.0, 64: 90.0}), began + 490)
    clock.now = began + 202
    slow = forecast.started(cohorts[0])
    clock.now = began + 223
    slow.progressed(clock.now, "train", 0, steps)
    others = [forecast.started(cohort) for cohort in cohorts[1:]]
    for running in others:
        running.progressed(clock.now + 10, "train", 0, steps)
    beside(clock, 10, (slow, 20))
    beside(clock, 37, (slow, 114), *((running, 345) for running in others))
    assert clock.now == began + 270
    with pytest.MonkeyPatch.context() as strictly:
        strictly.setattr(forecast_module, "MARGIN", 1.0)
        assert forecast.check(slow) == OutOfTime("would have ended 9 s too late")
    assert forecast.check(slow) is None
    beside(clock, 108, (slow, 190), *((running, 345) for running in others))
    assert forecast.check(slow) is None
    for running in others:
        forecast.ended(running)
    beside(clock, 60, (slow, 370))
    assert (forecast.check(slow), began + 490 - clock.now) == (None, 52)
    assert 0 < slow.left(clock.now, forecast.estimator, 1) < 30


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
