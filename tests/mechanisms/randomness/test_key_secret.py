"""Keys in Secret Manager: fetched by Google's own client from a server on this machine, and never shown."""

import pickle
import subprocess
import sys

import pytest

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import KeySecret, Release
from tests import secret_manager

KEY = b"5e" * 32


def name(secret, version="1"):
    return f"projects/p1/secrets/{secret}/versions/{version}"


PAYLOADS = {
    name("good"): KEY + b"\n",
    name("good", "12"): KEY.replace(b"5", b"6"),
    name("short"): KEY[2:],
    name(secret_manager.DAMAGED): KEY,
    name(secret_manager.UNCHECKED): KEY,
}

# Prints what each fetch gave. A worker is a process of its own, too.
FETCH = """
import sys
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import KeySecret
for resource in sys.argv[1:]:
    try:
        print(KeySecret(resource).fetch().hex())
    except ParameterError as error:
        shown = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        print(" ".join(str(error).split()), f"[{shown!r}]")
"""


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    with secret_manager.running(PAYLOADS, tmp_path_factory.mktemp("secrets")) as started:
        yield started


def fetch(environment, *resources):
    command = [sys.executable, "-c", FETCH, *resources]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.seconds
def test_every_answer_of_the_manager(manager):
    names = ["good", "short", secret_manager.DAMAGED, secret_manager.UNCHECKED, "missing"]
    manager.asked.clear()
    good, short, damaged, unchecked, missing, second, again = fetch(
        manager.environment, *map(name, names), name("good", "12"), name("good")
    )
    assert good == again == KEY.decode() and second == KEY.replace(b"5", b"6").decode()
    assert f"secret '{name('short')}' does not hold a key: it must be exactly 64 hexadecimal digits" in short
    assert "does not match its checksum" in damaged and "does not match its checksum" in unchecked
    assert f"secret '{name('missing')}' cannot be read: 403" in missing
    assert "or it may not exist" in missing and "roles/secretmanager.secretAccessor" in missing
    for message in (short, damaged, unchecked, missing):
        assert message.endswith(" [None]") and "5e5e" not in message
    assert manager.asked == [*map(name, names), name("good", "12")], "a version is fetched once in a process"


@pytest.mark.seconds
def test_no_credentials_and_no_library(manager, tmp_path):
    (tmp_path / "none.json").write_text("{}")
    environment = {**manager.environment, "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "none.json")}
    [message] = fetch(environment, name("good"))
    assert message.startswith(f"secret '{name('good')}' cannot be read: The file {tmp_path / 'none.json'}")
    # A package of this name that cannot be imported stands in front of the installed one.
    (tmp_path / "google_crc32c.py").write_text("raise ImportError")
    [message] = fetch({**manager.environment, "PYTHONPATH": str(tmp_path)}, name("good"))
    assert "install headcount[gcp]" in message and "5e5e" not in message


def test_google_is_not_imported_before_a_fetch():
    code = "import sys, headcount.mechanisms.randomness.keys as k; k.KeySecret('projects/p/secrets/s/versions/1')"
    code += "; assert not {'google.cloud.secretmanager_v1', 'google.auth', 'grpc', 'google_crc32c'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("project", ["p", "my-project-7", "123456789012", "example.com:my-project"])
def test_resource_names(project):
    resource = f"projects/{project}/secrets/Head_count-key/versions/12"
    assert KeySecret(resource).resource == resource


@pytest.mark.parametrize("version", ["latest", "stable", "0", "01", "1a"])
def test_the_version_must_be_a_number_since_another_name_may_change_its_meaning(version):
    with pytest.raises(ParameterError, match=f"by its number, as in {name('s')}, got '{version}': another key"):
        KeySecret(name("s", version))


@pytest.mark.parametrize(
    "resource",
    ["", "s", "projects/p/secrets/s", "projects/p/secrets/s/versions/", "projects//secrets/s/versions/1", name("a b"),
     f"/{name('s')}", f"{name('s')}/", f"{name('s')}\n", name("s" * 256), "projects/p/locations/l/secrets/s/versions/1"],
)  # fmt: skip
def test_other_names_are_refused(resource):
    with pytest.raises(ParameterError, match="projects/P/secrets/S/versions/N, got"):
        KeySecret(resource)


@pytest.mark.parametrize("resource", [KEY.decode(), name(KEY.decode()), name("s", KEY.decode())])
def test_a_key_in_place_of_a_name_is_refused_without_showing_it(resource):
    with pytest.raises(ParameterError, match="looks like a key itself") as error:
        KeySecret(resource)
    assert "5e5e" not in str(error.value)


@pytest.mark.seconds
def test_pickles_and_texts_never_hold_the_key(manager):
    """Also after a fetch, which keeps the key in the process."""
    code = f"""
import pickle, sys
from apache_beam.internal.cloudpickle import cloudpickle
from headcount.mechanisms.randomness.keys import KeySecret, Release
release = Release(KeySecret({name("good")!r}), "one")
key = release.key_source.fetch()
for data in (pickle.dumps(release), cloudpickle.dumps(release), cloudpickle.dumps(KeySecret), repr(release).encode()):
    assert key not in data and key.hex().encode() not in data
"""
    subprocess.run([sys.executable, "-c", code], env=manager.environment, check=True, timeout=120)
    release = Release(KeySecret(name("good")), "one")
    assert pickle.loads(pickle.dumps(release)) == release
