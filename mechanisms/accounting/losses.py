"""What a release states of its privacy losses, so that many of them can be composed: more than one epsilon and one delta.

Each part names a pair of distributions that dominates it: at every e^s, of any sign of s, the divergence of the part's outputs
on neighbours is at most that of the pair, in both directions. The parts, with their divergences h(s):

    Draw of range c         (1 - e^((s-c)/2))^2 / (1 - e^-c) for |s| <= c.
    Laplace, e in k steps   1 - e^((s-e)/2) at s = e - 2 m e / k for m = 0 .. k, and between these points linear in e^s.
    Curve                   given points, as of sample and threshold, and between these points linear in e^s.
    OneOf several           the largest of theirs, where a private choice decides which follows.
    mu                      Gaussian noise at a distance of mu standard deviations; such parts add up by their squares.
    rho                     zero-concentrated differential privacy; such parts add up. With an `order`, Renyi divergences D_a
                            are at most a rho for 1 < a <= order alone; of several orders it is the least.
    hiding                  the delta of selection: not private at all, with this probability.

Guarantee: products of these pairs dominate every adaptive composition, and `pld_sums` computes with them. A promise of
(epsilon, delta) of which no more is said is Laplace in one step, and hiding delta. Proofs: docs/proofs/accounting.md, "Privacy
losses".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from headcount.mechanisms.accounting.budget import Zcdp, check_order
from headcount.mechanisms.checks import check_at_least_0, check_number, check_positive, check_whole
from headcount.mechanisms.errors import ParameterError

_MOST = 10**18  # steps of noise, and times that a part is there
MOST_POINTS = 256


@dataclasses.dataclass(frozen=True)
class Draw:
    """A draw whose log-probabilities differ between neighbours by amounts within an interval of this length."""

    range: float

    def __post_init__(self) -> None:
        check_positive("range", self.range)

    def rho(self) -> float | None:
        """Its zCDP."""
        return self.range**2 / 8


@dataclasses.dataclass(frozen=True)
class Laplace:
    """Laplace noise for a loss of `epsilon`, on neighbours who are `steps` of its grid apart; 1 for all that is pure."""

    epsilon: float
    steps: int = 1

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        check_whole("steps", self.steps, 1, _MOST)

    @classmethod
    def in_more_steps(cls, epsilon: float, steps: int) -> Laplace:
        """What dominates noise for `epsilon` in this or any larger number of steps k.

        Between two points the divergence is at most that at the lower one, which is up to 2 epsilon / k lower. So it is at most
        1 - e^((s - epsilon') / 2) for epsilon' = epsilon (1 + 2 / k), a curve that steps only raise.
        """
        return cls(epsilon * (1 + 2 / steps) * (1 + 1e-12), steps)

    def rho(self) -> float | None:
        """Its zCDP (Bun, Steinke 2016)."""
        return self.epsilon**2 / 2


@dataclasses.dataclass(frozen=True)
class Curve:
    """Divergences at some `losses`, which begin with 0 and rise: of one user more (`added`), and of one user less.

    They fall; beyond the last they stay what they are there. `both` is for a user who is added to one thing and removed
    from another, each with a curve like this.
    """

    losses: tuple[float, ...]
    added: tuple[float, ...]
    removed: tuple[float, ...]
    both: bool = False

    def __post_init__(self) -> None:
        size = len(self.losses)
        if not 2 <= size <= MOST_POINTS or len(self.added) != size or len(self.removed) != size:
            raise ParameterError(
                f"a curve needs 2 to {MOST_POINTS} losses, and as many of added and removed, got {size}"
            )
        numbers = (*self.losses, *self.added, *self.removed)
        rising = all(a < b for a, b in zip(self.losses, self.losses[1:], strict=False))
        if not all(map(math.isfinite, numbers)) or self.losses[0] != 0 or not rising:
            raise ParameterError("the losses of a curve must begin with 0 and rise, and all of it be finite")
        for values in (self.added, self.removed):
            if not all(1 >= a >= b >= 0 for a, b in zip(values, values[1:], strict=False)):
                raise ParameterError("the divergences of a curve must lie between 0 and 1, and fall")
        if not isinstance(self.both, bool):
            raise ParameterError(f"both of a curve must be true or false, got {self.both!r}")

    def rho(self) -> float | None:
        """None: what is hidden by a sample has no zCDP."""
        return None


@dataclasses.dataclass(frozen=True)
class OneOf:
    """What one of several is, where it is decided on the way which."""

    ways: tuple[Losses, ...]

    def __post_init__(self) -> None:
        if len(self.ways) < 2:
            raise ParameterError(f"one of several ways needs two at least, got {len(self.ways)}")

    def rho(self) -> float | None:
        """That of the worst."""
        found = [way.rho_of_all() for way in self.ways]
        return None if None in found else max(rho for rho in found if rho is not None)


Part = Draw | Laplace | Curve | OneOf


@dataclasses.dataclass(frozen=True)
class Losses:
    """All parts of a release, or of many: each with the times that it is there."""

    mu: float = 0.0
    rho: float = 0.0
    hiding: float = 0.0
    parts: tuple[tuple[Part, int], ...] = ()
    order: float = math.inf  # up to which `rho` holds

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            check_at_least_0(name, getattr(self, name))
        check_order(self.order)
        for _, times in self.parts:
            check_whole("times", times, 1, _MOST)

    @classmethod
    def of(
        cls, *parts: Part, mu: float = 0.0, rho: float = 0.0, hiding: float = 0.0, order: float = math.inf
    ) -> Losses:
        """The losses of these parts, some of which may be equal."""
        return cls(mu, rho, hiding, _counted((part, 1) for part in parts), order)

    @classmethod
    def of_promise(cls, epsilon: float, delta: float) -> Losses:
        """What is known of all that keeps (epsilon, delta), and of nothing else."""
        return cls.of(*([Laplace(epsilon)] if epsilon > 0 else []), hiding=min(delta, 1.0))

    @classmethod
    def together(cls, several: Iterable[Losses]) -> Losses:
        """All of several, in whatever order, where each may depend on what the ones before have released."""
        found = list(several)
        if len(found) == 1:
            return found[0]
        shown = -math.expm1(sum(math.log1p(-each.hiding) if each.hiding < 1 else -math.inf for each in found))
        return cls(
            math.sqrt(math.fsum(each.mu**2 for each in found)) * (1 + 1e-15),
            math.fsum(each.rho for each in found) * (1 + 1e-15),
            min(1.0, abs(shown) * (1 + 1e-14)),
            _counted((part, n * times) for each, n in _same(found) for part, times in each.parts),
            min((each.order for each in found), default=math.inf),
        )

    @classmethod
    def one_of(cls, *ways: Losses) -> Losses:
        """One of these ways, which are all that can be."""
        different = tuple(dict.fromkeys(ways))
        return different[0] if len(different) == 1 else cls.of(OneOf(different))

    def __add__(self, other: Losses) -> Losses:
        return Losses.together([self, other])

    def rho_of_all(self) -> float | None:
        """The rho of the zCDP that all parts keep, but with the probability of `hidden_of_all`; None if one has none.

        It holds up to `order_of_all`.
        """
        found = [(part.rho(), times) for part, times in self.parts]
        if any(rho is None for rho, _ in found):
            return None
        return math.fsum([self.mu**2 / 2, self.rho, *(rho * times for rho, times in found if rho is not None)])

    def order_of_all(self) -> float:
        """The largest order for which all that is said of rho holds, on every way."""
        ways = (way for part, _ in self.parts if isinstance(part, OneOf) for way in part.ways)
        return min([self.order, *(way.order_of_all() for way in ways)])

    def hidden_of_all(self) -> float:
        """The probability with which it is not private at all, on the worst way."""
        logs = [math.log1p(-min(self.hiding, 1 - 2**-53))]
        for part, times in self.parts:
            if isinstance(part, OneOf):
                logs.append(times * math.log1p(-min(max(way.hidden_of_all() for way in part.ways), 1 - 2**-53)))
        return min(1.0, -math.expm1(math.fsum(logs)) * (1 + 1e-14))

    def zcdp(self) -> Zcdp | None:
        """The same as one value; None where there is none, none for all orders, or nothing to be private about."""
        return self.zcdp_to_order() if math.isinf(self.order_of_all()) else None

    def zcdp_to_order(self) -> Zcdp | None:
        """The same of orders up to `order_of_all` alone: a value to convert with that order, and in no other way."""
        rho, delta = self.rho_of_all(), self.hidden_of_all()
        return None if not rho or delta >= 1 else Zcdp(rho * (1 + 1e-14), delta)

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON: what is 0 is left out, and so is an order that has no end."""
        numbers = {name: value for name in _NUMBERS if (value := getattr(self, name))}
        numbers |= {} if math.isinf(self.order) else {"order": self.order}
        if not self.parts:
            return numbers
        return numbers | {"parts": [_part_dict(part) | {"times": times} for part, times in self.parts]}

    @classmethod
    def from_dict(cls, values: object) -> Losses:
        """The losses of which this is the `as_dict`; whatever else is refused."""
        found = check_names("the losses of a guarantee", values, (), (*_NUMBERS, "order", "parts"))
        mu, rho, hiding = (check_at_least_0(name, found.get(name, 0.0)) for name in _NUMBERS)
        parts = check_list("the parts of losses", found.get("parts", []))
        return cls(mu, rho, hiding, _counted(map(_part_of, parts)), found.get("order", math.inf))


_NUMBERS = ("mu", "rho", "hiding")
_KINDS = {"draw": Draw, "laplace": Laplace, "curve": Curve, "one-of": OneOf}
_FIELDS = {kind: tuple(field.name for field in dataclasses.fields(made)) for kind, made in _KINDS.items()}


def check_names(what: str, values: object, names: Iterable[str], others: Iterable[str] = ()) -> Mapping[str, Any]:
    """A mapping with just these names, and perhaps others."""
    if not isinstance(values, Mapping):
        raise ParameterError(f"{what} must be a mapping of names to values, as as_dict gives it, got {values!r}", what)
    missing, unknown = set(names) - set(values), set(values) - set(names) - set(others)
    if missing or unknown:
        wrong = [f"without {_listed(missing)}"] if missing else []
        wrong += [f"with {_listed(unknown)}, which is not known here"] if unknown else []
        raise ParameterError(f"{what} must have {_listed((*names, *others))}, got it {' and '.join(wrong)}", what)
    return values


def check_list(what: str, values: object) -> list[Any]:
    """A list, as JSON has it."""
    if not isinstance(values, list | tuple):
        raise ParameterError(f"{what} must be a list, got {values!r}", what)
    return list(values)


def _listed(names: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, names)))


def _same(several: Iterable[Losses]) -> Iterable[tuple[Losses, int]]:
    """Each of these once, with the times that it is there: of a thousand alike, one is looked at."""
    found: dict[int, tuple[Losses, int]] = {}
    for each in several:
        found[id(each)] = each, found.get(id(each), (each, 0))[1] + 1
    return found.values()


def _counted(parts: Iterable[tuple[Part, int]]) -> tuple[tuple[Part, int], ...]:
    """Equal parts once, with the times that they are there."""
    found: dict[Part, int] = {}
    for part, times in parts:
        found[part] = found.get(part, 0) + times
    return tuple(found.items())


def _part_dict(part: Part) -> dict[str, Any]:
    (kind,) = (kind for kind, made in _KINDS.items() if type(part) is made)
    values = {name: getattr(part, name) for name in _FIELDS[kind]}
    if isinstance(part, OneOf):
        values = {"ways": [way.as_dict() for way in part.ways]}
    return {"kind": kind} | {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _part_of(values: object) -> tuple[Part, int]:
    kind = check_names(
        "a part of losses", values, ("kind",), ("times", *(n for names in _FIELDS.values() for n in names))
    )
    if kind["kind"] not in _KINDS:
        raise ParameterError(f"a part of losses must be one of {_listed(_KINDS)}, got {kind['kind']!r}")
    names = _FIELDS[kind["kind"]]
    found = check_names(f"a {kind['kind']} of losses", values, ("kind", "times", *names))
    times = check_whole("times", found["times"], 1, _MOST)
    if kind["kind"] == "one-of":
        return OneOf(tuple(map(Losses.from_dict, check_list("ways", found["ways"])))), times
    if kind["kind"] == "curve":
        losses, added, removed = (
            tuple(check_number(name, each) for each in check_list(name, found[name]))
            for name in ("losses", "added", "removed")
        )
        return Curve(losses, added, removed, found["both"]), times
    if kind["kind"] == "laplace":
        return Laplace(
            check_positive("epsilon", found["epsilon"]), check_whole("steps", found["steps"], 1, _MOST)
        ), times
    return Draw(check_positive("range", found["range"])), times
