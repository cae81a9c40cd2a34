"""Models: history first, then regression, then the roofline; honest about what nobody measured."""

from __future__ import annotations

import math
from statistics import median

import pytest
from hypothesis import given, settings, strategies as st

from coexec.predict.model import KernelModel
from coexec.predict.roofline import Roofline
from coexec.predict.work import Estimate, Work
from tests.predict.shapes import (
    CALIBRATED,
    FLOPS_AT,
    UNSEEN,
    Shape,
    cached,
    calibrated,
    line,
    product,
    relative_errors,
    some_shapes,
    steady,
    trained,
)

# what nobody measured


def test_unknown_stays_unknown() -> None:
    model = KernelModel()
    work = product((256, 256, 256))
    assert model.seconds(work) is None and model.estimate(work) is None
    assert model.measured(work) == 0 and model.errors() is None and model.samples() == []


def test_another_kind_of_call_is_unknown() -> None:
    model = trained(1e-3, 1e-3, work=line(1000, "k", "float32"))
    assert model.seconds(line(1000, "k", "float64")) is None


def test_the_roofline_answers_estimates_only() -> None:
    model = KernelModel(Roofline(flops=1e11, bandwidth=1e10), flops_at=FLOPS_AT)
    work = product((1024, 1024, 1024))
    assert model.seconds(work) is None
    assert model.estimate(work) == Estimate(2 * 1024**3 / 1e11, 1.0, "roofline")
    model.learn(work, 1.0)
    estimate = model.estimate(work)
    assert estimate is not None and estimate.source == "history" and estimate.seconds == 1.0


def test_peak_rates_that_are_trusted_count_as_measured_until_something_is() -> None:
    model = KernelModel(Roofline(flops=1e11, bandwidth=1e10), flops_at=FLOPS_AT, trusting=True)
    work = product((1024, 1024, 1024))
    least = 2 * 1024**3 / 1e11
    assert model.seconds(work) == least and model.measured(work) > 10
    assert model.estimate(work) == Estimate(least, 0.0, "roofline")
    model.learn(work, 1.0)
    assert model.seconds(work) == 1.0
    nothing = KernelModel(Roofline(), trusting=True)
    assert nothing.seconds(work) is None and nothing.measured(work) == 0


def test_without_a_count_of_operations_the_roofline_looks_at_bytes() -> None:
    estimate = KernelModel(Roofline(flops=1.0, bandwidth=1e6)).estimate(line(2e6))
    assert estimate == Estimate(2.0, 1.0, "roofline")
    assert KernelModel(Roofline()).estimate(line(2e6)) is None


# history


def test_a_repeated_measurement_is_the_prediction() -> None:
    work = product((300, 400, 500))
    model = trained(9e-3, 2e-3, 2e-3, 2e-3, work=work)
    assert model.seconds(work) == 2e-3 and model.measured(work) == 4
    assert model.estimate(work) == Estimate(2e-3, 0.0, "history")


def test_exact_shapes_count_before_features() -> None:
    model = calibrated(steady, CALIBRATED)
    narrow = product(CALIBRATED[0])._replace(key="the same features, another filter")
    for _ in range(3):
        model.learn(narrow, 7.0)
    assert model.seconds(narrow) == 7.0
    assert model.seconds(product(CALIBRATED[0])) == pytest.approx(steady(narrow), rel=0.1)


def test_a_first_run_is_an_answer_but_a_doubtful_one() -> None:
    estimate = trained(3e-3, work=line(1000, "k")).estimate(line(1000, "k"))
    assert estimate == Estimate(3e-3, 0.5, "history")


def test_calls_without_a_key_are_known_by_their_features() -> None:
    model = trained(1e-3, 1e-3, work=line(1000))
    assert model.seconds(line(1000)) == 1e-3 and model.measured(line(1000)) == 2


def test_a_new_measurement_is_seen_by_the_next_question() -> None:
    """The last answer is remembered, but not beyond the next measurement."""
    work = line(1000, "k")
    model = trained(1e-3, 1e-3, work=work)
    assert model.seconds(work) == 1e-3
    for _ in range(3):
        model.learn(work, 3e-3)
    assert model.seconds(work) == 3e-3


def test_measurements_are_counted_by_key_else_by_size_class() -> None:
    model = trained(*[1e-3] * 5, work=line(1000, "a"))
    model.learn(line(900, "b"), 1e-3, together=True)
    assert model.measured(line(1000, "a")) == 5 and model.measured(line(900, "b")) == 1
    assert model.measured(line(700, "c")) == 6 and model.measured(line(4000, "c")) == 0


def test_times_that_are_no_times_are_ignored() -> None:
    model = trained(math.nan, math.inf, -1.0, work=line(1000))
    assert model.seconds(line(1000)) is None


# few shapes


def test_one_shape_scales_by_its_operations_or_else_its_bytes() -> None:
    small, large = product((256, 256, 256)), product((512, 512, 512))
    model = trained(1e-3, 1e-3, work=small)
    assert model.seconds(large) == pytest.approx(4e-3)
    model.flops_at = FLOPS_AT
    model.learn(small._replace(kind="other"), 1e-3)
    assert model.seconds(large._replace(kind="other")) == pytest.approx(8e-3)


def test_a_few_shapes_show_which_feature_the_time_follows() -> None:
    model = calibrated(lambda work: work.features[FLOPS_AT] / 1e11, [(256, 256, 256), (512, 300, 512)], noise=0.0)
    model.flops_at = None
    estimate = model.estimate(product((400, 400, 900)))
    assert estimate is not None and estimate.seconds == pytest.approx(2 * 400 * 400 * 900 / 1e11)
    assert estimate.source == "regression" and estimate.spread >= 0.25


# regression


@pytest.mark.parametrize("truth", [steady, cached])
@pytest.mark.parametrize("seed", range(3))
def test_shapes_never_run_are_predicted_within_five_percent(truth, seed: int) -> None:
    model = calibrated(truth, some_shapes(20, seed), seed=seed)
    errors = relative_errors(model, truth, UNSEEN)
    assert median(errors) < 0.05 and sorted(errors)[int(0.9 * len(errors))] < 0.15
    estimate = model.estimate(product(UNSEEN[0]))
    assert estimate is not None and estimate.source == "regression" and 0.0 < estimate.spread < 0.15


def test_what_no_line_describes_is_interpolated() -> None:
    def humped(work: Work) -> float:
        return 1e-9 * work.size * (1.4 if 1e5 < work.size < 1e6 else 1.0)

    model = KernelModel()
    for power in range(30, 71):
        for _ in range(3):
            work = line(10 ** (power / 10), power)
            model.learn(work, humped(work))
    for size in (2e4, 2.2e5, 4.4e5, 3e6):
        assert model.seconds(line(size)) == pytest.approx(humped(line(size)), rel=0.05)


def test_the_fit_follows_measurements_in_a_new_region() -> None:
    """Small calls show nothing but what a call costs; the first large ones teach the rest."""

    def costly(work: Work) -> float:
        return 1e-3 + steady(work)

    model = calibrated(costly, some_shapes(8, seed=1, low=8, high=16), noise=0.01)
    huge = product((40_000, 40_000, 40_000))
    before = model.seconds(huge)
    assert before is not None and not 0.5 < before / costly(huge) < 2.0
    for shape in some_shapes(6, seed=2, low=1000, high=3000):
        for _ in range(3):
            model.learn(product(shape), costly(product(shape)))
    assert model.seconds(huge) == pytest.approx(costly(huge), rel=0.2)


def test_errors_tell_how_far_the_fit_lies_from_what_was_measured() -> None:
    errors = calibrated(steady, CALIBRATED).errors()
    assert errors is not None and errors.count == len(CALIBRATED)
    assert 0.0 < errors.median_relative < 0.05
    assert errors.rmse_seconds < 0.1 * max(steady(product(shape)) for shape in CALIBRATED)


@pytest.mark.parametrize("in_a_row", [1, 2, 3])
def test_outliers_move_neither_history_nor_regression(in_a_row: int) -> None:
    """190 us seen as 70 ms once sent all the work to two of eight devices (starpu#50)."""
    model = calibrated(steady, CALIBRATED, noise=0.0, runs=7)
    version = model.version
    before = [model.seconds(product(shape)) for shape in (*CALIBRATED, *UNSEEN)]
    for i, shape in enumerate(CALIBRATED):
        work = product(shape)
        disturbed = i % (in_a_row + 1) > 0
        model.learn(work, steady(work) * (368 if disturbed else 1))
    after = [model.seconds(product(shape)) for shape in (*CALIBRATED, *UNSEEN)]
    assert after == before and model.version == version


@pytest.mark.parametrize("good", [2, 3, 5, 7, 20])
def test_outliers_between_good_runs_of_a_settled_shape_never_add_up(good: int) -> None:
    work = line(1000, "k")
    model = trained(*[1e-2] * 100, work=work)
    for _ in range(60):
        for value in (*[1e-2] * good, 2e-2):
            model.learn(work, value)
        estimate = model.estimate(work)
        assert estimate is not None and estimate.seconds == 1e-2


def test_a_shape_seen_once_as_an_outlier_does_not_spoil_its_neighbours() -> None:
    model = calibrated(steady, CALIBRATED)
    m, n, k = UNSEEN[0]
    near = product((m + 1, n, k))
    model.learn(near, 368 * steady(near))
    assert model.seconds(product(UNSEEN[0])) == pytest.approx(steady(product(UNSEEN[0])), rel=0.1)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 10**4), st.tuples(*[st.integers(1, 10**6)] * 3))
def test_far_away_predictions_stay_sane(seed: int, times: int, sides: Shape) -> None:
    model = calibrated(cached, some_shapes(12, seed), runs=3)
    m, n, k = sides
    here, more = model.seconds(product((m, n, k))), model.seconds(product((100 * m * times, n, k)))
    assert here is not None and more is not None
    assert 0.0 < here < more < math.inf


# a device that changes its speed


@pytest.mark.parametrize("factor", [2.0, 0.5, 1.3])
@pytest.mark.parametrize("keys", [1, 4])
def test_a_device_that_changed_its_speed_is_believed_after_a_few_runs(factor: float, keys: int) -> None:
    model = calibrated(steady, CALIBRATED, noise=0.01)
    unseen = product(UNSEEN[0])
    model.seconds(unseen)
    version = model.version
    for i in range(4):
        work = product(CALIBRATED[i % keys])
        model.learn(work, factor * steady(work))
    assert model.version > version
    assert model.seconds(unseen) == pytest.approx(factor * steady(unseen), rel=0.1)
    repeated, other = product(CALIBRATED[0]), product(CALIBRATED[-1])
    assert model.seconds(repeated) == pytest.approx(factor * steady(repeated), rel=0.1)
    assert model.seconds(other) == pytest.approx(factor * steady(other), rel=0.1)


def test_new_shapes_show_a_change_of_speed_as_well() -> None:
    model = calibrated(steady, CALIBRATED, noise=0.01)
    for shape in UNSEEN[1:5]:
        model.seconds(product(shape))
        model.learn(product(shape), 2.0 * steady(product(shape)))
    assert model.seconds(product(UNSEEN[0])) == pytest.approx(2.0 * steady(product(UNSEEN[0])), rel=0.1)


def test_a_device_that_is_back_at_its_speed_is_believed_too() -> None:
    model = calibrated(steady, CALIBRATED, noise=0.01)
    for factor in (2.0, 1.0):
        for shape in CALIBRATED[:5]:
            model.learn(product(shape), factor * steady(product(shape)))
    assert median(relative_errors(model, steady, [*CALIBRATED, *UNSEEN])) < 0.03


def test_disturbances_of_unlike_size_are_no_change_of_speed() -> None:
    model = calibrated(steady, CALIBRATED, noise=0.01)
    for shape, factor in zip(CALIBRATED, (1.2, 30.0, 2.0, 368.0, 1.5, 9.0), strict=False):
        model.learn(product(shape), factor * steady(product(shape)))
    assert median(relative_errors(model, steady, UNSEEN)) < 0.03


# versions


def test_the_version_grows_with_what_changes_answers_and_rests_otherwise() -> None:
    work = line(1000, "k")
    model = KernelModel()
    model.learn(work, 2e-3)
    first = model.version
    model.learn(work, 1e-3)
    warm = model.version
    assert warm > first > 0
    for value in (1.01e-3, 0.99e-3, 1.02e-3, 1e-3) * 20:
        model.learn(work, value)
    assert model.version == warm
    for _ in range(4):
        model.learn(work, 1.1e-3)
    model.learn(line(5000, "l"), 1e-3)
    assert model.version > warm


# alone and together


def slowed(work: Work) -> float:
    return 1.4 * steady(work)


def test_what_was_measured_together_is_predicted_together() -> None:
    work = product(CALIBRATED[0])
    model = calibrated(steady, CALIBRATED)
    for _ in range(3):
        model.learn(work, 1.5, together=True)
    assert model.seconds(work, together=True) == 1.5
    assert model.seconds(work) == pytest.approx(steady(work), rel=0.1)


@pytest.mark.parametrize("together", [True, False])
def test_a_condition_with_few_measurements_is_told_from_the_other(together: bool) -> None:
    """Shapes known under both conditions say what the condition costs."""
    model = KernelModel(flops_at=FLOPS_AT)
    for i, shape in enumerate(CALIBRATED):
        work = product(shape)
        for _ in range(3):
            model.learn(work, slowed(work) if not together else steady(work), together=not together)
            if i < 3:
                model.learn(work, slowed(work) if together else steady(work), together=together)
    truth = slowed if together else steady
    assert max(relative_errors(model, truth, CALIBRATED, together=together)) < 0.05
    assert median(relative_errors(model, truth, UNSEEN, together=together)) < 0.05
    estimate = model.estimate(product(CALIBRATED[-1]), together=together)
    assert estimate is not None and estimate.source == "history"


def test_with_one_condition_only_the_other_is_taken_as_equal() -> None:
    model = calibrated(steady, CALIBRATED, noise=0.0)
    assert max(relative_errors(model, steady, CALIBRATED, together=True)) < 1e-6
    assert median(relative_errors(model, steady, UNSEEN, together=True)) < 0.02


# the same and equal


def test_what_is_learnt_does_not_depend_on_which_object_says_it() -> None:
    """Features are kept between runtimes until there are too many: whether they are the same object is chance."""
    same, equal = KernelModel(), KernelModel()
    one = Work((1e6, 10.0), "f8", ((100, 100), "f8"))
    for i in range(200):
        seconds = 1e-3 * (1 + 0.05 * math.sin(i))
        same.learn(one, seconds, together=True)
        equal.learn(Work((1e6, 10.0), "f8", ((100, 100), "f8")), seconds, together=True)
        assert same.version == equal.version and same.measured(one) == equal.measured(one)
        if i % 7 == 0:
            again = Work((1e6, 10.0), "f8", ((100, 100), "f8"))
            assert same.seconds(one, together=True) == equal.seconds(again, together=True)


@given(
    st.lists(st.floats(1e-7, 1e-2), max_size=80),
    st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=6),
)
@settings(max_examples=40, deadline=None)
def test_measurements_that_are_learnt_at_once_are_learnt_one_after_the_other(
    odd: list[float], runs: list[tuple[int, bool]]
) -> None:
    at_once, one_by_one = KernelModel(), KernelModel()
    work = line(1000, "k", "float32")
    settled = [1e-4] * 40
    for count, together in runs:
        measured = [*settled[:count], *odd[:count], *settled]
        at_once.learn_all(work, measured, together=together)
        for seconds in measured:
            one_by_one.learn(work, seconds, together=together)
        assert at_once.version == one_by_one.version and at_once.measured(work) == one_by_one.measured(work)
        assert at_once.seconds(work, together=together) == one_by_one.seconds(work, together=together)
        assert at_once.samples() == one_by_one.samples()


def test_shapes_that_are_nearly_alike_do_not_tell_that_time_follows_what_is_the_same_for_all() -> None:
    model = KernelModel()
    for size, seconds in ((1000.0, 1.33e-4), (1016.0, 1.31e-4)):  # noise: the larger one took less
        for _ in range(3):
            model.learn(Work(features=(size, 8.0), key=("part", size), kind="float64"), seconds, together=True)
    found = model.estimate(Work(features=(32_000.0, 8.0), key="whole", kind="float64"), together=True)
    assert found is not None and found.seconds == pytest.approx(32 * 1.32e-4, rel=0.05)
