"""A real PostgreSQL for these tests, started for them alone; it takes connections by a socket in its own folder."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid

import psycopg
import pytest

from tests.pipelines.conftest import run as run
from tests.pipelines.ledger.accounts import call, job, key, ledger  # noqa: F401

PASSWORD = "canary-4711"


def programs() -> str:
    """The folder of the server's programs, by the PATH or where Debian puts them."""
    found = shutil.which("initdb")
    folders = [os.path.dirname(found)] if found else sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    if not folders:
        pytest.fail("these tests need PostgreSQL: install it (apt-get install postgresql)")
    return folders[-1]


def account() -> pwd.struct_passwd | None:
    """Who runs the server, where this is root, whom it refuses."""
    if os.getuid() != 0:
        return None
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("postgres")
    return pwd.getpwnam("nobody")


@pytest.fixture(scope="session")
def server():
    """The folder of a running server."""
    bin, user, folder = programs(), account(), tempfile.mkdtemp(prefix="headcount-postgres-")
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    with open(f"{folder}/password", "w") as file:
        file.write(PASSWORD)
    os.chmod(f"{folder}/password", 0o644)  # of a server that is gone after the tests

    def run_as(*words):
        who = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd=folder, env={"PATH": os.defpath}, **who)

    data = f"{folder}/data"
    run_as(f"{bin}/initdb", "-D", data, "-U", "headcount", "-A", "scram-sha-256", f"--pwfile={folder}/password")
    given = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off -c max_connections=260"
    run_as(f"{bin}/pg_ctl", "-D", data, "-w", "-o", given, "-l", f"{folder}/log", "start")
    try:
        yield folder
    finally:
        run_as(f"{bin}/pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder)


@pytest.fixture
def database(server):
    """The URL of a new database."""
    name = f"ledger_{uuid.uuid4().hex}"
    with psycopg.connect(
        host=server, user="headcount", password=PASSWORD, dbname="postgres", autocommit=True
    ) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"postgresql://headcount:{PASSWORD}@/{name}?host={server}"


@pytest.fixture
def url(database):
    """Where a new ledger may be made."""
    return database
