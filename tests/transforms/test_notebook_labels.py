"""In a notebook Beam puts the number of the cell before the labels of steps: it must not reach the noise.

Otherwise a cell that is run twice would publish the same data under one release id with two draws of noise.
`tests/docs/test_notebooks.py` shows the same in a real kernel.
"""

from __future__ import annotations

import apache_beam as beam
import pytest

from headcount.mechanisms import ParameterError
from headcount.transforms import Budget, Histogram, SampledHistogram
from headcount.transforms.core import release as labels

ROWS = [(f"u{k % 300}", f"i{k % 5}") for k in range(1500)]
LABELS = ["Counts", "[3]: Counts", "[13]: [12]: Counts"]  # the last is of a step that was applied in two cells


@pytest.fixture
def release(make_release):
    return make_release()


@pytest.fixture
def in_a_notebook(monkeypatch):
    monkeypatch.setattr(labels, "_in_ipython", lambda: True)


def rows_of(collect, label, step, create="Create"):
    """The rows that a step of this label releases, which it has in a notebook."""
    return sorted(collect(lambda pipeline: pipeline | create >> beam.Create(ROWS) | label >> step))


def histogram(release):
    return Histogram(Budget(epsilon=1, delta=1e-6), method="one-stage", bound=5, release=release)


@pytest.mark.seconds
@pytest.mark.usefixtures("in_a_notebook")
def test_another_cell_gives_the_same_rows(collect, release):
    plain, *numbered = (rows_of(collect, label, histogram(release)) for label in LABELS)
    assert plain and all(rows == plain for rows in numbered)


@pytest.mark.seconds
def test_with_the_number_of_the_cell_they_would_differ(collect, release):
    """The bug that was there: outside a notebook such a label is the user's own, and part of the noise."""
    one, other = (rows_of(collect, f"[{cell}]: Counts", histogram(release)) for cell in (3, 4))
    assert one and one != other


@pytest.mark.seconds
@pytest.mark.usefixtures("in_a_notebook")
def test_a_sample_is_known_by_its_collection_without_the_number(collect, release):
    step = SampledHistogram(Budget(epsilon=1, delta=1e-3), max_items=5, release=release)
    once, again = (rows_of(collect, "Counts", step, f"[{cell}]: Create") for cell in (1, 2))
    assert once and once == again


@pytest.mark.usefixtures("in_a_notebook")
def test_two_steps_of_one_name_in_two_cells_are_refused(release):
    pipeline = beam.Pipeline(runner="FnApiRunner")
    rows = pipeline | beam.Create(ROWS)
    rows | "[3]: Counts" >> histogram(release)
    with pytest.raises(
        ParameterError, match="^two cells of this notebook put a step called 'Counts.*' into one pipeline"
    ):
        rows | "[4]: Counts" >> histogram(release)
    rows | "[4]: More" >> histogram(release)


def test_a_process_without_a_notebook_is_none():
    assert not labels._in_ipython()
