"""The comparison with other libraries: pages show what is recorded, and the budget that one of them is given is a valid one."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest
from scipy.stats import norm

TOP = Path(__file__).resolve().parents[1]


def module(name: str) -> ModuleType:
    """A file of the comparison, which is no package of ours."""
    spec = importlib.util.spec_from_file_location(f"peers_{name}", TOP / "benchmarks" / "_peers" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made  # dataclasses look their module up
    spec.loader.exec_module(made)
    return made


tables = module("tables")


@pytest.mark.parametrize("page", tables.PAGES)
def test_pages_show_what_is_recorded(page):
    text, results = (TOP / page).read_text(), json.loads(tables.RESULTS.read_text())
    assert text.count("<!-- peers: begin") == text.count("<!-- peers: end -->") == 1
    assert text == tables.marked(text, results, tables.PAGES[page]), "run benchmarks/peers.py --tables"


def test_what_another_library_does_better_is_told():
    line = {"setting": "m=1 c=1, Laplace", "keys": [12], "cpu": 1, "wall": 1}
    line["held"] = dict.fromkeys(tables.METRICS)
    equal = {name: {"theirs": [0.1], "ours": [0.1]} for name in tables.METRICS}
    better = equal | {"mean": {"theirs": [0.05], "ours": [0.1]}}
    own = line | {"who": "Headcount", "errors": equal}
    log = {"public": False, "lines": [own, line | {"who": "Other", "errors": better}]}
    assert "- mean of Other (m=1 c=1, Laplace): 5 % and ours 10 %, on 12 keys" in tables.closer(log)
    assert tables.best(log["lines"][1:], log)["errors"]["mean"] == better["mean"]
    assert "No setting" in tables.closer({"public": False, "lines": [own, own | {"who": "Other"}]})
    more = line | {"who": "Other", "errors": equal, "keys": [13]}
    assert "names more keys: 13" in tables.closer({"public": False, "lines": [own, more]})


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-8), (0.5, 5e-9), (4.0, 1e-6)])
def test_the_rho_of_gaussian_noise_keeps_epsilon_and_delta(epsilon, delta):
    """By the exact delta of Gaussian noise with distance 1 and stddev 1 / sqrt(2 rho); not much is given away, either."""
    rho = module("exchange").zcdp(epsilon, delta)
    mu = math.sqrt(2 * rho)
    exact = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert 0.01 * delta < exact < delta
