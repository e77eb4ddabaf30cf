"""A user in n windows: the exact loss of all releases together, on the worst neighbours, through the code that draws.

Each window is a release with an id of its own. Its loss is known exactly (`tests/privacy/draws`), and losses add up if no two
windows share a word of any lane, which is looked at word by word (`tests/privacy/independence`).
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.windows import over_releases
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.histogram.total import total
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.windows import Windows
from tests.privacy.draws import Draws, laplace_loss
from tests.privacy.independence import Words

EPSILON, NUMBER = 0.5, 6
WINDOWS = Windows(0, 60, NUMBER)
USERS = total(Budget(EPSILON), of="users")


@pytest.fixture
def release(make_release) -> Release:
    plain = make_release()
    return Release(plain.key_source, plain.id, windows=WINDOWS)


def rows(users: list[str]) -> list[pa.RecordBatch]:
    return [contribution_batch(pa.array(users), pa.array(["i"] * len(users)))]


def loss(draws: Draws, release: Release, end: int) -> float:
    """That of a window in which one user is there or not, beside the same others."""
    values, noise = [], []
    for users in (["v", "w"], ["v", "w", "u"]):
        draws.forget()
        (row,) = USERS.run(rows(users), release.of_window(end), "It").to_pylist()
        (drawn,) = draws.noise
        values.append(row["bounded_count"] - int(drawn.drawn.sum()))
        noise.append(drawn)
    assert noise[0].scale == noise[1].scale
    return laplace_loss(*values, noise[:1])


def test_the_loss_of_a_user_in_n_windows_is_what_is_told(release, monkeypatch):
    draws = Draws(monkeypatch)
    losses = [loss(draws, release, begin + WINDOWS.size) for begin in WINDOWS.starts()]
    for n in range(1, NUMBER + 1):
        told = over_releases(USERS.guarantee(), n)
        assert (told.epsilon, told.delta) == (pytest.approx(sum(losses[:n])), 0)
    assert losses == [pytest.approx(EPSILON)] * NUMBER


def read_twice(words: Words, releases: list[Release]) -> int:
    words.forget()
    for each in releases:
        USERS.run(rows(["u", "v", "w"]), each, "It")
    assert words.all
    return words.twice


def test_no_two_windows_share_a_word_and_one_lane_for_two_is_caught(release, monkeypatch):
    """Also where their rows are the same. The mutation: two windows with one id."""
    words = Words(monkeypatch)
    own = [release.of_window(begin + WINDOWS.size) for begin in WINDOWS.starts()]
    assert read_twice(words, own) == 0
    assert read_twice(words, [own[0], own[0], *own[2:]]) > 0


def test_the_same_rows_again_give_the_same_bytes_and_others_share_no_word(release, monkeypatch):
    """A window that is computed again from its rows is no second release; from other rows it is one, with noise of its own."""
    own, words = release.of_window(60), Words(monkeypatch)
    first = USERS.run(rows(["u", "v"]), own, "It")
    assert USERS.run(rows(["v", "u"]), own, "It").equals(first)
    words.forget()
    for users in (["u", "v"], ["u", "v", "w"]):
        USERS.run(rows(users), own, "It")
    assert words.twice == 0
