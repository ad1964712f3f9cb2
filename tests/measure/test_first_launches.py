"""The first launch of a config may contain a compilation: how long a launch takes is known from the second."""

from tunewright.measure.case_check import CaseCheck


class Check(CaseCheck):
    """A case whose launches take the given seconds; results are always right."""

    def __init__(self, *seconds):
        self._left = list(seconds)

    def _timed_run(self):
        return {}, self._left.pop(0)

    def problem(self, place, draw, results):
        return None


def test_a_launch_takes_as_long_as_the_shorter_of_two() -> None:
    check = Check(0.5, 0.001)
    assert check.verify(2.0)[0] is None
    assert (check.first_seconds, check.launch_seconds) == (0.5, 0.001)


def test_there_is_no_second_launch_if_there_is_no_time_for_it() -> None:
    check = Check(1.5)
    assert check.verify(2.0)[0] is None
    assert (check.first_seconds, check.launch_seconds) == (1.5, 1.5)
