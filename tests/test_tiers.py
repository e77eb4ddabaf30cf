"""A slow test says what it repeats, and nothing is left out but with its marker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.tiers import REPEATS, repeats, waits

TESTS = Path(__file__).parent


@pytest.mark.parametrize("made", [pytest.mark.slow, pytest.mark.slow("often"), pytest.mark.slow("kills", "races")])
def test_a_slow_test_that_does_not_say_what_it_repeats_is_refused(made):
    with pytest.raises(pytest.UsageError, match="says in one word"):
        repeats(made.mark)


def test_every_word_is_some_test_s():
    texts = [path.read_text() for path in TESTS.rglob("*.py")]
    assert not [word for word in REPEATS if not any(f'mark.slow("{word}")' in text for text in texts)]


@pytest.mark.parametrize(
    ("markers", "waiting"),
    [
        ([], False),
        ([pytest.mark.seconds], False),
        ([pytest.mark.slow("kills")], False),
        ([pytest.mark.slow("accuracy")], True),
        ([pytest.mark.slow("kills"), pytest.mark.everything], True),
    ],
)
def test_what_measures_accuracy_or_is_marked_waits_for_everything(markers, waiting):
    marks = [each.mark for each in markers]
    item = SimpleNamespace(
        iter_markers=lambda name: iter([mark for mark in marks if mark.name == name]),
        get_closest_marker=lambda name: next((mark for mark in marks if mark.name == name), None),
    )
    assert waits(item) is waiting
