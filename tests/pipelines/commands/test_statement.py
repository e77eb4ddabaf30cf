"""`headcount statement`: what people outside are told of a release, and as a record of OpenDP's registry."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import jsonschema
import pytest
import yaml

import headcount
from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.pipelines.commands.outputs.complete import Complete, DataFile
from headcount.pipelines.commands.outputs.facts import APPROXIMATE, PURE, ZCDP, OverTime, facts_of, rounded_up
from headcount.pipelines.commands.outputs.registry import FILL_IN, record
from headcount.pipelines.commands.outputs.statement import markdown
from tests.golden.events import events
from tests.pipelines.commands.test_verify import planned
from tests.pipelines.refusals import refused
from tests.runners.jobs import JOBS, STORED, WIRED

# The registry's schema (opendp/deployments-registry-data, commit 057e5d8) as far as our records go: names, types and values.
TEXT = {"type": "string", "minLength": 1}


def _object(required=(), **properties):
    return {"type": "object", "additionalProperties": False, "required": [*required], "properties": properties}


CURATOR = _object(
    ("data_curator_name", "data_curator_type"),
    data_curator_name=TEXT,
    data_curator_type={"enum": ["Government", "Industry", "Nonprofit"]},
)
KINDS = ["Summary statistics", "Machine learning model", "Dataset", "Synthetic data", "Interactive API", "SQL queries"]
STATES = ["Converted", "Draft", "Pending", "Changes Required", "Approved"]
SCHEMA = _object(
    ("url_slug", "deployment"),
    url_slug=TEXT,
    deployment=_object(
        ("basic", "administrative"),
        basic=_object(
            ("name", "data_curators", "description", "intended_use", "data_product_type", "data_product_region")
            + ("publication_date",),
            name=TEXT,
            data_curators={"type": "array", "items": CURATOR, "minItems": 1},
            description=TEXT,
            intended_use=TEXT,
            data_product_type={"enum": KINDS},
            data_product_region=TEXT,
            data_product_sector={"enum": ["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"]},
            publication_date={"type": "string", "format": "date"},
        ),
        dp_variant=_object(
            variant_name={"enum": ["Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"]},
            data_domain=TEXT,
            unprotected_quantities=TEXT,
        ),
        privacy_loss=_object(
            privacy_unit=TEXT,
            privacy_unit_details=TEXT,
            number_of_privacy_units={"type": "integer"},
            privacy_parameters=_object(
                epsilon={"type": "number"}, delta={"type": ["number", "string"]}, rho={"type": "number"}
            ),
            privacy_parameters_details=TEXT,
        ),
        deployment_model=_object(
            model_name={"enum": ["Local", "Central", "Shuffle", "Federated", "Varies"]},
            model_name_details=TEXT,
            trust_assumptions=TEXT,
            actors=TEXT,
            release_type={"enum": ["One release", "Many releases"]},
            release_type_details=TEXT,
            data_source_type={"enum": ["Static", "Dynamic"]},
            data_source_type_details=TEXT,
            access_type={"enum": ["Interactive", "Non-interactive"]},
            access_type_details=TEXT,
        ),
        implementation=_object(
            preprocessing_and_hyperparameter_tuning=TEXT,
            mechanisms=TEXT,
            composition=TEXT,
            post_processing=TEXT,
            justification=TEXT,
            utility=TEXT,
            additional_information=TEXT,
        ),
        administrative=_object(
            ("status", "registry_authors", "tier"),
            evidence_sources={"type": "object"},
            status={"enum": STATES},
            registry_authors={"type": "array", "items": TEXT, "minItems": 1},
            tier={"enum": [1, 2, 3]},
        ),
    ),
)
VALIDATOR = jsonschema.Draft7Validator(SCHEMA, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER)
KNOWN = {"data_curator_type": "Nonprofit", "publication_date": "2030-01-31", "release_type": "One release"}
KNOWN |= {"data_source_type": "Static"}


def filled_in(value, name=""):
    """A record with what only its publisher knows."""
    if isinstance(value, dict):
        return {key: filled_in(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [filled_in(each, name) for each in value]
    return KNOWN.get(name, "known") if value == FILL_IN else value


def report_of(job, **parts):
    """The report of a job, but for what comes of its run."""
    words = (JOBS | STORED)[job]
    _, _, plan = planned(words)
    parameters = {name: value for name, value in plan.parameters.items() if value is not None}
    details = {"guarantee": plan.guarantee.as_dict(), "parameters": parameters, "versions": {"numpy": "2"}}
    shared = {"headcount": "0.1.0", "command": words.split()[0], "release_id": "0123456789abcdef", "rows": 5}
    return json.loads(json.dumps(shared | {"promise": plan.guarantee.promise_line(), "details": details} | parts))


def told(report, over_time=None):
    found = Complete("/out", report, [DataFile("counts-00000-of-00001.parquet", "ab" * 32)], "cd" * 32)
    return markdown(facts_of(report), over_time, found)


@pytest.mark.slow("jobs")
@pytest.mark.parametrize("job", [*WIRED, *STORED])
def test_every_job_has_a_statement_and_a_record(job):
    report = report_of(job, label="visits", period="May")
    text = told(report)
    assert report["promise"] in text and "Label: visits" in text and "ab" * 32 in text
    for step in report["details"]["guarantee"]["mechanisms"]:
        assert step["name"] in text
    assert "None" not in text and "{" not in text
    content = record(facts_of(report), None)
    VALIDATOR.validate(filled_in(content))
    wrong = {error.path[-1] for error in VALIDATOR.iter_errors(content)}
    assert wrong == {*KNOWN}, "a record with parts left to fill in is refused by the registry's own check"


def test_the_variant_and_what_follows_from_it():
    pure = facts_of(report_of("users of a public domain"))
    assert (pure.variant, pure.unit) == (PURE, "User-level")
    rho, replaced = pure.converted()
    assert 0.1 < rho.rho <= 1 / 2 * (1 + 1e-9) and rho.delta == 0 and (replaced.epsilon, replaced.delta) == (2, 0)
    assert replaced.terms == PURE

    approximate = facts_of(report_of("estimates"))
    assert approximate.variant == APPROXIMATE
    (replaced,) = approximate.converted()  # names by law have no zCDP
    assert replaced.epsilon == 2 and replaced.delta >= (1 + math.e) * 1e-6
    assert [each.terms for each in facts_of(report_of("replaced users")).converted()] == [ZCDP]
    gaussian = facts_of(report_of("a public domain, Gaussian"))
    (noise,) = [step for step in gaussian.guarantee.mechanisms if "scale" in step.details]
    assert gaussian.converted()[0].rho == pytest.approx(5**2 / (2 * noise.details["scale"] ** 2), rel=1e-3)

    zcdp = facts_of(report_of("named, then counted"))
    assert zcdp.variant == ZCDP and (zcdp.given().rho, zcdp.given().delta) == (0.5, 1e-6)
    implied = zcdp.converted()[0]
    assert implied.terms == APPROXIMATE
    assert Budget(implied.epsilon, implied.delta) == Zcdp(0.5, 1e-6).to_budget(1e-6)

    by_rounds = facts_of(report_of("the largest counts"))
    assert by_rounds.variant == APPROXIMATE and by_rounds.converted()[0].rho == by_rounds.parameters["rho"]


def test_numbers_are_never_rounded_down():
    for value in (1.0, 1.9999991e-6, 7.766216625, 0.63440550807, 123456.7, 1e-300):
        assert value <= float(rounded_up(value)) <= value * (1 + 1e-5)
    assert rounded_up(0.1) == "0.1"


def test_what_is_taken_for_public_is_said():
    public = report_of("users of a public domain")
    public["details"]["parameters"]["domain_digest"] = "d1"
    assert "was public before (digest of its keys: d1)" in told(public)
    assert "these are public: the number of users: 4000" in told(report_of("heavy hitters"))
    assert "the number of users, which replacing one does not change" in told(report_of("replaced users"))
    assert "A user is all rows with one value in the column `user`" in told(report_of("estimates"))
    by_day = report_of("protected by day")
    by_day["details"]["guarantee"]["unit"] = "user-day"
    text = told(by_day | {"protected": "what a user did in one day is protected"})
    assert "User-day" in text or "user-day" in text
    assert text.count("What a user did in one day is protected.") == 2
    by = "A user-day is all rows of one day, by the column `seen` in the zone {}, with one value in the column `user`, in all"
    assert by.format("UTC") in text, "the zone of a report that names none"
    by_day["details"]["parameters"]["time_zone"] = "Asia/Tokyo"
    assert by.format("Asia/Tokyo") in told(by_day)


def test_how_parameters_were_set():
    chosen = told(report_of("a chosen bound", decision="chosen: a bound of 7"))
    assert "Choice of the bound: made by the job from the data, privately; its cost (epsilon = 0.1)" in chosen
    assert "What was chosen is published: a bound of 7." in chosen
    given = report_of("replaced users")
    assert "privately" not in told(given) and "All other parameters were given" in told(given)
    given["details"]["parameters"]["bound_from"] = "r9"
    assert "another release, r9, whose cost comes on top" in told(given)


def test_composition_over_time():
    report = report_of("estimates")
    assert "no ledger was named for this statement" in told(report)
    over_time = OverTime(
        "visits", 52, "Together: epsilon = 10.1 at delta = 1e-06.", "epsilon = 12, delta = 1e-06", True
    )
    text = told(report, over_time)
    assert "the data set `visits` holds 52 releases, this one among them. Together: epsilon = 10.1" in text
    assert "Its limit: epsilon = 12" in text
    content = record(facts_of(report), over_time)["deployment"]
    assert content["deployment_model"]["release_type"] == "Many releases"
    assert "epsilon = 10.1" in content["implementation"]["composition"]
    assert "1 release, this one is not" in told(report, over_time._replace(releases=1, holds=False))


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    out = tmp_path_factory.mktemp("statement") / "out"
    headcount.sampled(events(), user="user", item="item", epsilon=1, delta=1e-6, label="visits\x1b[31m").save(out)
    return out


def test_it_is_printed_or_written(run, out, tmp_path):
    status, text, err = run("statement", out)
    assert (status, err) == (0, []) and text.startswith("# Statement on a differentially private release\n")
    assert "\x1b" not in text and "visits" in text
    for name in ("json", "yaml"):
        status, text, err = run("statement", out, "--format", name)
        assert status == 0 and len(err) == 1 and "fill in before you send it: " in err[0] and "intended_use" in err[0]
        assert run("statement", out, "--format", name, "--output", tmp_path / name)[1] == ""
        assert (tmp_path / name).read_text() == text
    contents = [json.loads((tmp_path / "json").read_text()), yaml.safe_load((tmp_path / "yaml").read_text())]
    assert contents[0] == contents[1]
    VALIDATOR.validate(filled_in(contents[0]))
    refused(run("statement", out, "--output", tmp_path / "json"), "is there already")
    refused(run("statement", out, "--output", tmp_path / "no" / "file"), "cannot be written")
    refused(run("statement", tmp_path), "no complete output")


@pytest.mark.parametrize("details", [{}, {"guarantee": {}, "parameters": {}}, None, {"guarantee": 5}])
def test_a_report_that_lacks_its_promise(details):
    with pytest.raises(headcount.InputError, match="its promise or its parameters are not whole"):
        facts_of(report_of("estimates") | {"details": details})


def test_nothing_of_beam_is_imported(out):
    code = (
        f"import sys; from headcount.pipelines.main import main; status = main(['statement', {str(out)!r}]); "
        "sys.exit(status or 'apache_beam' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_account_of_a_data_set(run, tmp_path):
    """From a real ledger: two releases, of which the statement is on one."""
    ledger = ["--ledger", f"sqlite:///{tmp_path}/ledger.db"]
    assert run("ledger", "create", "visits", *ledger, "--limit-epsilon", "8", "--limit-delta", "1e-5")[0] == 0
    shared = {"user": "user", "item": "item", "epsilon": 1, "delta": 1e-6, "ledger": ledger[1], "dataset": "visits"}
    for name in ("first", "second"):
        headcount.sampled(events(), **shared).save(tmp_path / name)
    headcount.sampled(events(), user="user", item="item", epsilon=1, delta=1e-6).save(tmp_path / "none")
    account = [*ledger, "--dataset", "visits"]
    text = run("statement", tmp_path / "second", *account)[1]
    assert "the ledger of the data set `visits` holds 2 releases, this one among them. 2 releases: epsilon = " in text
    assert "Its limit: epsilon = 8 at delta = 1e-05" in text
    assert "this one is not among them" in run("statement", tmp_path / "none", *account)[1]
    refused(run("statement", tmp_path / "first", *ledger), "--ledger needs --dataset")
    refused(run("statement", tmp_path / "first", *ledger, "--dataset", "other"), "other")
