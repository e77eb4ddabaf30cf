"""The command line: what is accepted, and one clear line for what is not."""

import itertools
import pickle

import pytest
from apache_beam.options.pipeline_options import DirectOptions

from headcount.mechanisms.columns.keys import Keys
from headcount.mechanisms.domains.domain_files import DomainFile
from headcount.mechanisms.domains.key_ranges import KeyRange
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import KeyEnvironment, KeyFile, write_key_file
from headcount.pipelines import parser, releases
from headcount.pipelines.commands import distribution, histogram, plume, quantiles
from headcount.pipelines.commands.tools import key as make_key
from headcount.pipelines.jobs.on_beam import pipeline_options, shards_for
from headcount.pipelines.sources.domain import domain_file

BASE = ["--epsilon", "1", "--delta", "1e-8", "--bound", "10"]


def parse(*flags):
    return parser.parse(histogram.COMMAND, flags)


def refused(*flags):
    """The line that refuses these flags, from the parser or from the checks after it."""
    with pytest.raises(ParameterError) as error:
        histogram.check(parse(*flags)[0])
    assert "\n" not in str(error.value)
    return str(error.value)


def test_every_flag():
    args, beam_flags = parse(
        *("--input", "a*.parquet", "--input=b.csv", "--user", "u", "--item", "i", "--item=t:day", "--count", "n"),
        *("--epsilon", "1", "--delta", "1e-8", "--relation", "replace", "--noise", "gaussian"),
        *("--bound", "10", "--max-per-item", "2", "--domain", "d.txt", "--output", "out", "--format", "avro"),
        *(
            "--overwrite",
            "--output-files",
            "3",
            "--key-env",
            "KEY",
            "--release-id",
            "r",
            "--shards",
            "7",
            "--memory-limit",
            "2G",
        ),
        *("--objective", "items", "--bound-method", "em", "--bound-share", "0.2"),
        *(
            "--time-zone",
            "Europe/Berlin",
            "--explode",
            "tags",
            "--max-item-bytes",
            "99",
            "--drop-null",
            "--explain",
            "--verbose",
        ),
        *("--of", "users", "--method", "one-stage", "--calibrate", "none"),
        *("--input-format", "csv", "--delimiter", ";", "--where", "a = 1", "--join", "t.csv", "--on", "c"),
        *("--label", "shops", "--period", "May", "--max-relative-error", "0.2", "--suppress-below", "9"),
        *("--ledger", "sqlite:///ledger.db", "--dataset", "visits", "--clock-checked"),
    )
    assert beam_flags == []
    assert vars(args) == {
        **{"input": ["a*.parquet", "b.csv"], "user": "u", "item": ["i", "t:day"], "count": "n"},
        **{"time_zone": "Europe/Berlin", "explode": "tags", "protect": "user", "time": None, "windows": None},
        **{"epsilon": 1.0, "delta": 1e-8, "relation": "replace", "noise": "gaussian"},
        **{"bound": 10, "max_items": None, "max_per_item": 2, "domain": ["d.txt"], "output": "out", "format": "avro"},
        **{"overwrite": True, "output_files": 3, "key_env": "KEY", "key_file": None, "release_id": "r"},
        **{"key_secret": None, "objective": "items", "bound_method": "em", "bound_share": 0.2},
        **{"bound_from": None, "like": None},  # files, which are read
        **{"of": "users", "method": "one-stage", "calibrate": "none", "levels": None, "home": False},
        **{
            "shards": 7,
            "memory_limit": 2 << 30,
            "max_item_bytes": 99,
            "drop_null": True,
            "explain": True,
            "verbose": True,
        },
        **{"input_format": "csv", "delimiter": ";", "where": "a = 1", "join": "t.csv", "on": "c"},
        **{"label": "shops", "period": "May", "max_relative_error": 0.2, "suppress_below": 9},
        **{"top": None, "per": None},
        **{"ledger": "sqlite:///ledger.db", "dataset": "visits", "clock_checked": True},
    }


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--epsilon", "nan"], ["epsilon", "nan"]),
        (["--epsilon", "0"], ["epsilon", "0"]),
        (["--epsilon=-1"], ["epsilon", "-1"]),
        (["--epsilon", "inf"], ["epsilon", "inf"]),
        (["--epsilon", "lots"], ["--epsilon must be a number", "'lots'"]),
        (["--epsilon", "1,5"], ["--epsilon must be a number with a point, 1.5, got '1,5'"]),
        (["--delta", "1"], ["delta", "1"]),
        (["--delta", "0"], ["--delta must be positive", "--domain", "for instance --delta 1e-8"]),
        (["--bound", "0"], ["--bound must be a whole number", "'0'"]),
        (["--bound", "2.5"], ["--bound must be a whole number", "'2.5'"]),
        (["--bound=-3"], ["--bound must be a whole number", "'-3'"]),
        (["--bound", "1_0"], ["--bound", "'1_0'"]),
        (["--bound"], ["--bound", "expected one argument"]),
        (["--output-files", "0"], ["--output-files", "'0'"]),
        (["--format", "xml"], ["--format", "'xml'", "parquet"]),
        (["--input-format", "xml"], ["--input-format", "'xml'", "parquet"]),
        *(
            (["--delimiter", text], ["--delimiter must be one character such as ';'"])
            for text in ("", ";;", '"', "t", "\n", "ä")
        ),
        (["--relation", "swap"], ["--relation", "'swap'", "add-remove"]),
        (["--noise", "pink"], ["--noise", "'pink'"]),
        (["--max-per-item", "0", "--domain", "d"], ["--max-per-item must be a whole number", "'0'"]),
        (
            ["--of", "events", "--method", "one-stage", "--max-per-item", "11"],
            ["--max-per-item must not exceed --bound 10", "11"],
        ),
        *(
            (["--method", method, "--max-per-item", "3"], ["--max-per-item 3 is for events", "add --of events"])
            for method in ("estimates", "one-stage")
        ),
        (["--key-env", "K", "--key-file", "f"], ["--key-file", "--key-env"]),
        (["--epsilom", "2"], ["unknown flag '--epsilom'", "did you mean --epsilon?"]),
        (["--eps", "2"], ["unknown flag '--eps'; did you mean --epsilon?"]),
        (["--out=x"], ["unknown flag '--out'; did you mean --output?"]),
        (["--Max_Per_Item", "2"], ["unknown flag '--Max_Per_Item'; did you mean --max-per-item?"]),
        (
            ["--max", "2"],
            ["unknown flag '--max'; did you mean --max-items, --max-per-item or --max-item-bytes?"],
        ),
        (["--labels", "shops"], ["--labels is a flag of Beam; did you mean --label? else give it after a bare --"]),
        (["--zebra=7"], ["unknown flag '--zebra'", "--help"]),
        (["-q"], ["unknown flag '-q'"]),
        (["stray"], ["unexpected argument 'stray'; see headcount histogram --help"]),
        (["--input", "a.csv", "b.csv"], ["unexpected argument 'b.csv'; put a pattern of --input in quotes"]),
        (["--direct_num_workers", "many"], ["--direct_num_workers", "'many'"]),
        (["--direct_num_work", "2"], ["unknown flag '--direct_num_work'", "did you mean --direct_num_workers?"]),
        (["--runnr", "x"], ["unknown flag '--runnr'", "did you mean --runner?"]),
    ],
)
def test_refusals_name_the_flag_and_the_value(flags, words):
    given = flags[0].split("=")[0]
    base = {"--epsilon": "1", "--delta": "1e-8", "--bound": "10"}
    base.pop(given, None)
    line = refused(*itertools.chain(*base.items()), *flags)
    assert all(word in line for word in words), line


@pytest.mark.parametrize(
    ("flags", "flag"),
    [
        (["--epsilon", "5"], "--epsilon"),
        (["--bound=10"], "--bound"),
        (["--user", "query", "--user=genre"], "--user"),
        (["--output", "a", "--output", "a"], "--output"),
    ],
)
def test_a_flag_with_one_value_is_refused_if_it_is_given_twice(flags, flag):
    assert refused(*BASE, *flags) == f"{flag} is given twice: leave one of them out"


def test_flags_that_may_be_given_twice():
    args, beam_flags = parse(*BASE, "--input", "a", "--input=a", "--overwrite", "--overwrite", "--", "--epsilon=5")
    assert (args.input, args.epsilon, beam_flags) == (["a", "a"], 1.0, ["--epsilon=5"])


@pytest.mark.parametrize(("text", "character"), [(";", ";"), ("|", "|"), ("tab", "\t"), ("\\t", "\t"), ("\t", "\t")])
def test_delimiters(text, character):
    assert parse(*BASE, "--delimiter", text)[0].delimiter == character


def test_values_that_begin_with_a_dash():
    args, _ = parser.parse(quantiles.COMMAND, ["--range", "-5:3", "--range=-.5:3", "--lo", "-5e1", "--hi", "-.5"])
    assert (args.range, args.lo, args.hi) == ([(-5, 3), (-0.5, 3)], -50.0, -0.5)
    with pytest.raises(ParameterError, match="^--item: expected one argument; .* begins with a dash .* --item=VALUE$"):
        parse("--item", "-x")


@pytest.mark.parametrize(
    ("command", "flags", "words"),
    [
        (histogram, ["--bound", "abc"], "--bound must be a whole number from 1 to 1000000000, or auto, got 'abc'"),
        (
            plume,
            ["--max-items", "x"],
            "--max-items must be a whole number from 1 to 1000000000, or auto, got",
        ),
        (distribution, ["--samples-per-user", "mean"], ", or auto, median or buckets, got 'mean'"),
    ],
)
def test_words_beside_numbers_are_listed(command, flags, words):
    with pytest.raises(ParameterError) as error:
        parser.parse(command.COMMAND, flags)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("command", "raised", "said"),
    [
        (histogram, ("epsilon must be positive, got 0.0", "epsilon"), "--epsilon must be positive, got 0.0"),
        (
            plume,
            ("max_relative_error must be a number, got 0", "max_relative_error"),
            "--max-relative-error must be a number, got 0",
        ),
        (quantiles, ("a quantile must be a number, got 2", "a quantile"), "--quantile must be a number, got 2"),
        (histogram, ("alpha must be a number, got 2", "alpha"), "alpha must be a number, got 2"),
        (histogram, ("the epsilon must be 1",), "the epsilon must be 1"),
        (histogram, ("domain 'd' is empty", "domain"), "--domain 'd' is empty"),
    ],
)
def test_parameters_are_told_as_flags_of_the_command(command, raised, said):
    assert str(parser.in_flags(command.COMMAND, ParameterError(*raised))) == said


def test_missing_flags_are_named():
    assert (
        refused("--bound", "10")
        == "missing --epsilon (how much one user can change the result at most, for instance 1)"
    )
    assert refused("--delta", "1e-8").startswith("missing --epsilon")


def test_delta_may_be_zero_with_a_domain():
    histogram.check(parse("--epsilon", "1", "--bound", "10", "--domain", "d.txt")[0])


@pytest.mark.parametrize("cap", ["1", "11"])
def test_a_domain_takes_a_cap_on_one_item_even_above_the_bound(cap):
    """It is cut to before counts are scaled, so that it says what is counted, and not only how much."""
    histogram.check(parse(*BASE, "--of", "events", "--domain", "d.txt", "--max-per-item", cap)[0])


def test_flags_of_beam_are_accepted_in_both_spellings():
    args, beam_flags = parse("--direct_num_workers", "2", *BASE, "--runner=FlinkRunner", "--streaming")
    assert beam_flags == ["--direct_num_workers", "2", "--runner=FlinkRunner", "--streaming"]
    assert args.bound == 10


def test_what_stands_after_two_dashes_is_passed_on_as_it_is():
    args, beam_flags = parse(*BASE, "--", "--parallelism_of_flink=2", "--bound", "99", "--", "x")
    assert beam_flags == ["--parallelism_of_flink=2", "--bound", "99", "--", "x"]
    assert args.bound == 10


def test_commands_without_a_pipeline_take_no_flag_of_beam():
    with pytest.raises(ParameterError, match="unknown flag '--runner'"):
        parser.parse(make_key.COMMAND, ["file", "--runner=FlinkRunner"])


@pytest.mark.parametrize(
    ("flags", "runner", "remote"),
    [
        ([], "FnApiRunner", None),
        (["--runner=DirectRunner"], "FnApiRunner", None),
        (["--runner", "direct"], "FnApiRunner", None),
        (["--runner=apache_beam.runners.direct.direct_runner.DirectRunner"], "FnApiRunner", None),
        (["--runner=FlinkRunner"], "FlinkRunner", "FlinkRunner"),
        (["--runner=PrismRunner"], "PrismRunner", "PrismRunner"),
    ],
)
def test_local_runs_are_pinned(flags, runner, remote):
    given, found = pipeline_options(flags)
    assert found == remote
    assert given.get_all_options()["runner"] == runner


def test_an_unknown_runner_is_refused():
    with pytest.raises(ParameterError, match="unknown runner 'Foo': give --runner one of .*FlinkRunner"):
        pipeline_options(["--runner=Foo"])
    for runner in ("flink", "Dataflow", "my.own.Runner"):
        assert pipeline_options([f"--runner={runner}"])[1] is not None


def release(runner, *flags):
    return releases.make_release(parse(*BASE, *flags)[0], runner)


def test_a_local_run_needs_no_key():
    assert release(None).key_source.fetch()
    assert release(None).id != release(None).id


def test_a_remote_runner_needs_a_key_source():
    with pytest.raises(ParameterError, match="FlinkRunner .* --key-env or --key-file"):
        release("FlinkRunner")
    assert release("FlinkRunner", "--key-env", "NOT_SET_HERE").key_source == KeyEnvironment("NOT_SET_HERE")


def test_a_release_is_repeated_only_with_its_key(tmp_path):
    with pytest.raises(ParameterError, match="--release-id 'again' .* --key-file or --key-env"):
        release(None, "--release-id", "again")
    path = str(tmp_path / "key")
    write_key_file(path)
    made = release(None, "--release-id", "again", "--key-file", path)
    assert (made.id, made.key_source) == ("again", KeyFile(path))
    with pytest.raises(ParameterError, match="a/b"):
        release(None, "--release-id", "a/b", "--key-file", path)
    for words in (["--key-file", path], []):  # without a key, an id is told
        with pytest.raises(ParameterError, match="--release-id must be an id, and this looks like a key") as error:
            release(None, "--release-id", "5E" * 32, *words)
        assert "5E5E" not in str(error.value)


def test_a_bad_key_is_refused_before_a_local_run(tmp_path):
    path = tmp_path / "key"
    with pytest.raises(ParameterError, match="key"):
        release(None, "--key-file", str(path))
    path.write_text("abc123canary")
    path.chmod(0o600)
    with pytest.raises(ParameterError) as error:
        release(None, "--key-file", str(path))
    assert "abc123canary" not in str(error.value)
    path.unlink()
    write_key_file(path)
    path.chmod(0o644)
    with pytest.raises(ParameterError, match="open to others"):
        release(None, "--key-file", str(path))


def test_shards_follow_the_size_of_the_input():
    assert shards_for(0) == shards_for(256 << 20) == 4
    assert shards_for(6400 << 20) == 100
    assert shards_for(1 << 50) == 4096
    assert shards_for(0, shared=True) == 32 and shards_for(6400 << 20, shared=True) == 400


def domain(content, item_type=str):
    return list(DomainFile("d.txt", 20, lambda _: content).domain(Keys.plain(item_type)))


def test_domain_files():
    assert domain("a\n b\nzwölf\n".encode()) == [" b", "a", "zwölf"]
    assert domain(b"\xef\xbb\xbfa\r\nb") == ["a", "b"]
    assert domain(b"007\n7\n") == ["007", "7"]
    assert domain(b"7\n-9223372036854775808\n0\n", int) == [-(2**63), 0, 7]


@pytest.mark.parametrize(
    ("content", "item_type", "words"),
    [
        (b"", str, "empty"),
        (b"a\n\nb\n", str, "line 2 is empty"),
        (b"a\nb\na\n", str, "line 3 repeats line 1"),
        (b"a\xff\n", str, "UTF-8"),
        (b"a\n" + b"b" * 21, str, "line 2 is longer than 20 bytes"),
        (b"1\nb\n", int, "line 2 is not a whole number"),
        (b"007\n", int, "line 1 is not a whole number"),
        (b"9223372036854775808\n", int, "line 1 is not a whole number"),
    ],
)
def test_bad_domain_files_are_refused(content, item_type, words):
    with pytest.raises(ParameterError, match=words):
        domain(content, item_type)


@pytest.mark.parametrize(
    ("given", "names", "path"),
    [
        (["d.txt"], ["item"], "d.txt"),
        (["day=2026-11-01/d.txt"], ["item"], "day=2026-11-01/d.txt"),
        (["a=x.txt"], ["a"], {"a": "x.txt"}),
        (["b=y=1.txt", "a=x.txt"], ["a", "b"], {"a": "x.txt", "b": "y=1.txt"}),
        (["a=x.txt"], ["a", "b"], {"a": "x.txt"}),
        (["a=1..12"], ["a", "b"], {"a": KeyRange("1", "12")}),
    ],
)
def test_a_domain_is_one_file_or_one_for_each_column(given, names, path):
    assert domain_file(given, names, 99).path == path


@pytest.mark.parametrize(
    "given", [["x.txt", "y.txt"], ["1..12"], ["c=1..12"], ["a=x.txt", "a=y.txt"], ["a=x.txt", "c=y.txt"]]
)
def test_other_files_of_a_domain_are_refused(given):
    with pytest.raises(
        ParameterError, match=rf"domain must be one file, or a=FILE b=FILE \(.*\), got {' '.join(given)}"
    ):
        domain_file(given, ["a", "b"], 99)


def test_a_view_of_beams_options_is_made_once_and_a_copy_has_its_own():
    given, _ = pipeline_options(["--direct_num_workers", "2"])
    view = given.view_as(DirectOptions)
    assert view is given.view_as(DirectOptions)
    copied = pickle.loads(pickle.dumps(given))
    view.direct_num_workers = 5
    assert given.get_all_options()["direct_num_workers"] == 5
    assert copied.view_as(DirectOptions).direct_num_workers == 2
