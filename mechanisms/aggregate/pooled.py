"""Means of keys, each by its own noisy sums and by what all keys have in common: post-processing, which costs nothing.

The mean r of x on a key of n rows is told by its sum S as S / n, with a noise that is known. Other keys tell two things more:

1. Where r may lie: about b, with a variance t, the mean and the variance of all keys less what noise adds to it. Where noise is
   much larger than what keys differ by, a key has about the mean of all.
2. What stands beside the sum for free (`measures`), a gap or a cosine and a sine, is about a square polynomial g of r: most
   keys of a larger mean have another cosine, too. So a noisy cosine tells of r as well, the more the steeper g is, and the less
   keys differ from g, by a variance that they tell themselves.

All are put together by their precision, around an r that is made anew a few times (empirical Bayes, in the way of Efron and
Morris, with Gauss and Newton's steps). t and the variance around g are as if one more key could be anywhere: so few keys are
left nearly as they are. A key that is unlike all others is drawn towards them, but never out of its own interval, which rests
on its own sums alone: there `answers` cuts.

Everything is elementwise, a sum, or a few numbers in Python: the same on every processor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headcount.mechanisms import tuning


def pooled(sums: Sequence[np.ndarray], rows: np.ndarray, noise: float, rows_noise: float) -> np.ndarray:
    """The means of x of all keys: `sums` are the noisy ones of x and of what stands beside it, all with the same noise."""
    size = np.maximum(rows, rows_noise)
    known = rows / size  # 1, but for keys that may have no rows
    own, *beside = (each / size for each in sums)
    small = 1 / (size * size)
    spread = tuning.KEY_VARIANCE
    for _ in range(tuning.POOLING_ROUNDS):
        weight = spread / (spread + noise * noise * small)
        middle = min(max(_total(weight * own) / max(_total(weight * known), 1.0), -1.0), 1.0)
        apart = own - middle * known
        of_noise = noise * noise + middle * middle * rows_noise * rows_noise
        beyond = _total(weight * apart * apart) - of_noise * _total(weight * small) + tuning.KEY_VARIANCE
        spread = max(beyond, tuning.KEY_VARIANCE / 2) / max(_total(weight), 1.0)
    ratio = middle + spread / (spread + of_noise * small) * apart
    weight = weight * weight  # of keys that are known well, of which polynomials are made
    for _ in range(tuning.POOLING_STEPS):
        precision, told = np.full(len(rows), 1 / spread), np.full(len(rows), middle / spread)
        for place, each in enumerate((own, *beside)):
            line = ratio, np.ones(len(rows)), 0.0
            value, slope, around = line if not place else _curve(ratio - middle, each, weight, noise * noise * small)
            sure = 1 / ((noise * noise + value * value * rows_noise * rows_noise) * small + around)
            precision = precision + slope * slope * sure
            told = told + slope * (each - value + slope * ratio) * sure
        ratio = np.clip(told / precision, -1.0, 1.0)
    return ratio


def _curve(x: np.ndarray, y: np.ndarray, weight: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """A square polynomial of x that is close to y, its slope, and the variance of y around it beyond the noise."""
    square = x * x
    powers = [_total(weight), *(_total(weight * each) for each in (x, square, square * x, square * square))]
    left = [
        [powers[a + b] + (tuning.POOLING_STIFFNESS * max(powers[0], 1.0) if a == b else 0.0) for b in range(3)]
        for a in range(3)
    ]
    c0, c1, c2 = _solved(left, [_total(weight * each) for each in (y, x * y, square * y)])
    value = c0 + c1 * x + c2 * square
    away = y - value
    free = max(powers[0] - 3, 1.0)
    around = (max(_total(weight * (away * away - noise)), 0.0) + tuning.KEY_VARIANCE) / free
    return value, c1 + 2 * c2 * x, around


def _solved(left: list[list[float]], right: list[float]) -> list[float]:
    """The solution of a few linear equations of a positive definite matrix, by elimination."""
    rows = [[*row, value] for row, value in zip(left, right, strict=True)]
    for a, row in enumerate(rows):
        for other in rows:
            if other is not row:
                factor = other[a] / row[a]
                other[:] = [mine - factor * its for mine, its in zip(other, row, strict=True)]
    return [row[-1] / row[a] for a, row in enumerate(rows)]


def _total(numbers: np.ndarray) -> float:
    return float(numbers.sum())
