"""A runner's own death is told from wrong rows and from errors of ours; it runs again once, and these never."""

from __future__ import annotations

import pytest

from tests.deaths import death

pytest_plugins = ["pytester"]

PANIC = "panic in stage.Execute bundle processing goroutine: runtime error: invalid memory address or nil pointer dereference"
BEAM = (
    '  File "/site-packages/apache_beam/runners/worker/sdk_worker.py", line 596, in release\n    pop(instruction_id)\n'
)
OURS = '  File "/headcount/transforms/core/noise.py", line 90, in process\n    yield self._run(group)\n'
CLIENT = '  File "/headcount/pipelines/jobs/on_beam.py", line 141, in run\n    result.wait_until_finish()\n'
ROWS = "assert {'counts-00000-of-00001.csv': b'i1,3'} == {'counts-00000-of-00001.csv': b'i1,4'}"


def failed(error: str) -> str:
    """A job that failed, as a test tells it."""
    client = f"Traceback (most recent call last):\n{CLIENT}"
    return f"AssertionError: {client}RuntimeError: Pipeline job-001 failed: {error}\nassert 1 == 0"


def on_worker(frames: str, error: str) -> str:
    return f"bundle inst018 stage-007 failed:Traceback (most recent call last):\n{frames}{error}\n"


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (failed(f"{PANIC}, stage: &{{ID:stage-007}},stackTrace:\ngoroutine 33 [running]:"), PANIC),
        (failed(on_worker(BEAM, "KeyError: 'inst018'")), "KeyError: 'inst018'"),
        (failed(PANIC + on_worker(BEAM, "KeyError: 'inst018'")), PANIC),
        (f"AssertionError: {ROWS}", None),
        (failed(on_worker(BEAM + OURS, "KeyError: 'inst018'")), None),
        (failed(f"{PANIC}\n{on_worker(BEAM + OURS, 'ValueError: the sums are not bounded')}"), None),
        (failed(on_worker(BEAM, "KeyError: 'item'")), None),
        (failed("panic in stage.Execute bundle processing goroutine: zero length key: stage-004"), None),
        ("AssertionError: headcount: bad.csv: column 'item', row 7: is null\nassert 2 == 0", None),
        ("TimeoutError: the job did not end in time", None),
    ],
)
def test_a_death_is_the_runner_s_by_its_own_message_alone(message, cause):
    assert death(message) == cause


@pytest.fixture
def ran(pytester):
    """ran(body): how many of each outcome there were, how often the test was set up, and the reports of its parts."""
    pytester.makeconftest("""
        import pytest
        from tests import deaths

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_protocol(item, nextitem):
            return deaths.run(item, nextitem)
    """)

    def run(body):
        pytester.makepyfile(f"""
            import pathlib, pytest

            @pytest.fixture
            def times():
                file = pathlib.Path("times")
                file.write_text(file.read_text() + "x" if file.exists() else "x")
                return len(file.read_text())

            def test_it(times):
                {body}
        """)
        done = pytester.inline_run("-p", "no:cacheprovider", "-p", "no:xdist")
        reports = done.getreports("pytest_runtest_logreport")
        return [len(part) for part in done.listoutcomes()], len((pytester.path / "times").read_text()), reports

    return run


def test_what_died_runs_once_more_and_it_is_told(ran):
    (passed, _, wrong), times, reports = ran(f"assert times == 2, {PANIC!r}")
    assert (passed, wrong, times) == (1, 0, 2)
    assert [report.user_properties for report in reports] == [[("rerun", PANIC)]] * 3


def test_what_dies_twice_has_failed(ran):
    (passed, _, wrong), times, _ = ran(f"assert False, {PANIC!r}")
    assert (passed, wrong, times) == (0, 1, 2)


def test_wrong_rows_never_run_again(ran):
    (passed, _, wrong), times, reports = ran("assert times == 2, 'other rows'")
    assert (passed, wrong, times) == (0, 1, 1)
    assert {tuple(report.user_properties) for report in reports} == {()}
