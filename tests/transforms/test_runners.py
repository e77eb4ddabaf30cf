"""Which runners are on this machine: every spelling that Beam takes."""

import pytest

from headcount.transforms.core.release import is_on_this_machine, is_pinned


@pytest.mark.parametrize(
    ("runner", "pinned", "here"),
    [
        (None, True, True),
        ("direct", True, True),
        ("DirectRunner", True, True),
        ("SwitchingDirectRunner", True, True),
        ("apache_beam.runners.portability.fn_api_runner.FnApiRunner", True, True),
        ("BundleBasedDirectRunner", False, True),
        ("prism", False, True),
        ("PrismRunner", False, True),
        ("FlinkRunner", False, False),
        ("DataflowRunner", False, False),
        ("behind this expansion service", False, False),
    ],
)
def test_a_runner_by_every_name(runner, pinned, here):
    assert (is_pinned(runner), is_on_this_machine(runner)) == (pinned, here)
