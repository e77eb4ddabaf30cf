"""A release as a record for the Differential Privacy Deployments Registry of OpenDP.

Its schema is `schemas/deployments-schema.yaml` of github.com/opendp/deployments-registry-data, as of commit 057e5d8: `url_slug`
and `deployment`, with basic, dp_variant, privacy_loss, deployment_model, implementation and administrative. What only the
publisher knows, such as who it is, is FILL_IN: the registry's own check refuses a record with that in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from headcount.pipelines.commands.outputs.facts import Converted, Facts, OverTime, listed, rounded_up

FILL_IN = "FILL IN"


def record(facts: Facts, over_time: OverTime | None) -> dict[str, Any]:
    """The record, as YAML or JSON hold it."""
    report, name = facts.report, facts.report.get("label")
    number = FILL_IN if over_time is None else "Many releases" if over_time.releases > 1 else "One release"
    return {
        "url_slug": _slug(f"{name or report['command']} {report['release_id'][:12]}"),
        "deployment": {
            "basic": {
                "name": name or FILL_IN,
                "data_curators": [{"data_curator_name": FILL_IN, "data_curator_type": FILL_IN}],
                "description": " ".join(filter(None, (facts.product, f"{report['rows']:,} rows.", _period(report)))),
                "intended_use": FILL_IN,
                "data_product_type": "Summary statistics",
                "data_product_region": FILL_IN,
                "publication_date": FILL_IN,
            },
            "dp_variant": {
                "variant_name": facts.variant,
                "data_domain": "Logs of events: rows with a user and what the user did, of any number of users and rows.",
                "unprotected_quantities": listed(facts.not_protected()),
            },
            "privacy_loss": {
                "privacy_unit": facts.unit,
                "privacy_unit_details": facts.adjacency(),
                **({"number_of_privacy_units": facts.users} if _knows_users(facts) else {}),
                "privacy_parameters": _parameters(facts),
                "privacy_parameters_details": listed([_describe(each) for each in (facts.given(), *facts.converted())]),
            },
            "deployment_model": {
                "model_name": facts.model,
                "trust_assumptions": listed(facts.trust()),
                "release_type": number,
                "release_type_details": facts.composition(over_time)[1],
                "data_source_type": FILL_IN,
                "access_type": "Non-interactive",
                "access_type_details": "Files are published; nobody outside can query the data.",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": listed(facts.tuning()),
                "mechanisms": listed(
                    [*facts.mechanisms(), facts.versions, facts.floating_point(), facts.timing(), facts.randomness()]
                ),
                "composition": listed(facts.composition(over_time)),
                "post_processing": listed(facts.post_processing()),
                "justification": FILL_IN,
            },
            "administrative": {"status": "Draft", "registry_authors": [FILL_IN], "tier": 3},
        },
    }


def to_fill_in(value: Any, place: str = "") -> Iterator[str]:
    """Where in a record something is left to fill in."""
    if value == FILL_IN:
        yield place
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inside:
        yield from to_fill_in(each, f"{place}.{name}".lstrip("."))


def _parameters(facts: Facts) -> dict[str, float]:
    """The numbers of the promise, in the terms of its variant; of zCDP also what it implies."""
    given, numbers = facts.given(), {}
    if given.rho is not None:
        numbers["rho"] = given.rho
    numbers["epsilon"] = facts.guarantee.epsilon
    if facts.guarantee.delta:
        numbers["delta"] = facts.guarantee.delta
    return numbers


def _describe(each: Converted) -> str:
    named = {"epsilon": each.epsilon, "delta": each.delta, "rho": each.rho}
    numbers = ", ".join(f"{name} = {rounded_up(value)}" for name, value in named.items() if value is not None)
    return f"{each.terms} ({numbers}): {each.how}"


def _knows_users(facts: Facts) -> bool:
    return facts.users is not None


def _period(report: Any) -> str | None:
    return f"The time of the events: {report['period']}." if "period" in report else None


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
