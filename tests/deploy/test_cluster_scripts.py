"""What flink.sh and spark.sh say while they wait, and whose cluster they leave alone: all that needs no Flink and no Spark.

tests/runners has the rest, on a real cluster.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from tests.deploy.java_class import FACTORY, written

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "flink"
ENGINES = {"flink": "job-manager", "spark": "master"}  # the folder of each, and the server that leads its cluster


def script(*words: object, folder: Path = FOLDER, **variables: object) -> subprocess.Popen[str]:
    """A call of the script, with the Python of this test."""
    environment = os.environ | {"PYTHON": sys.executable} | {name: str(value) for name, value in variables.items()}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([str(folder / f"{folder.name}.sh"), *map(str, words)], env=environment, **pipes)


@pytest.fixture
def server(tmp_path):
    """A process of somebody, such as a server of a cluster; it is this test's own."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def running(pid: int) -> dict[str, object]:
    """How the script writes down a process."""
    told = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True).stdout
    return {"pid": pid, "birth": " ".join(told.split())}


@pytest.mark.parametrize("engine", ENGINES)
def test_another_checkout_does_not_stop_the_cluster(tmp_path, server, engine):
    """Both have one home; the state of the first lies where its own `start` puts it."""
    folder = FOLDER.with_name(engine)
    other = shutil.copytree(FOLDER.parent, tmp_path / "other" / "deploy") / engine
    place = hashlib.blake2b(os.fsencode(folder), digest_size=4).hexdigest()
    state = tmp_path / "headcount" / f"{engine}-{place}" / "state.json"
    state.parent.mkdir(parents=True)
    content = {
        "flink": "http://localhost:1",
        "pages": "http://localhost:1",
        "own": True,
        "token": "t",
        "processes": {ENGINES[engine]: running(server.pid)},
    }
    state.write_text(json.dumps(content))
    out, err = script("stop", folder=other, XDG_STATE_HOME=tmp_path).communicate(timeout=60)
    assert (out, err) == ("not running\n", "") and server.poll() is None and state.exists()
    out, err = script("stop", folder=folder, XDG_STATE_HOME=tmp_path).communicate(timeout=60)
    assert (out, err) == ("stopped\n", "") and server.wait(timeout=60) == -signal.SIGTERM and not state.exists()


@pytest.mark.parametrize("lost", [False, True])
def test_jobs_of_another_cluster_at_the_same_address_are_not_cancelled(tmp_path, server, lost):
    """Ours has ended by itself, and its port is another's by now."""
    asked: list[str] = []

    class Flink(http.server.BaseHTTPRequestHandler):
        """A cluster with one job, which ends when it is cancelled."""

        def do_GET(self) -> None:
            state = "CANCELED" if any("PATCH" in each for each in asked) else "RUNNING"
            self._answer({"jobs": [{"jid": "j", "name": "theirs", "state": state, "start-time": 1}]})

        def do_PATCH(self) -> None:
            asked.append(f"PATCH {self.path}")
            self._answer({})

        def _answer(self, content: object) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("localhost", 0), Flink) as flink:
        threading.Thread(target=flink.serve_forever, daemon=True).start()
        manager = running(server.pid) | ({"birth": "long ago"} if lost else {})
        content = {"flink": f"http://localhost:{flink.server_port}", "own": True, "token": "t"}
        (tmp_path / "state.json").write_text(json.dumps(content | {"processes": {"job-manager": manager}}))
        out, err = script("--state", tmp_path, "stop").communicate(timeout=60)
        flink.shutdown()
    assert err == "" and out.endswith("stopped\n")
    assert asked == ([] if lost else ["PATCH /jobs/j?mode=cancel"])
    assert (server.poll() is None) == lost, "a process of the same number that is another's goes on"


def test_start_says_what_it_waits_for(tmp_path):
    """Java, in place of Flink, does nothing for a while; then it is told that the cluster did not start."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nsleep 2\n")
    java.chmod(0o755)
    jars = hashlib.blake2b((FOLDER / "pom.xml").read_bytes(), digest_size=8).hexdigest()
    folder = tmp_path / "headcount" / f"flink-{jars}"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "beam.jar", "w") as jar:
        jar.writestr(FACTORY, written())
    variables = {"JAVA_HOME": tmp_path / "java", "XDG_CACHE_HOME": tmp_path}
    call = script("--state", tmp_path / "state", "start", "--task-managers", 3, **variables)
    out, err = call.communicate(timeout=60)
    assert call.returncode == 2 and err.splitlines()[-1].startswith("flink.sh: the Flink cluster at http://localhost:")
    assert out.startswith("waiting for the Flink cluster at http://localhost:")
    assert out.endswith(" with 3 task managers to answer, up to 5 minutes\n")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_call_says_that_it_waits_for_another(tmp_path, engine):
    with open(tmp_path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        call = script("--state", tmp_path, "stop", folder=FOLDER.with_name(engine))
        threading.Timer(3, fcntl.flock, (lock, fcntl.LOCK_UN)).start()
        out, err = call.communicate(timeout=60)
    assert (out, err) == (f"waiting for another call of {engine}.sh that uses {tmp_path}\nnot running\n", "")


def test_submit_takes_commands_of_two_words(tmp_path):
    """Beam's flags stand behind both: `stream` has none of its own."""
    words = [
        "stream",
        "total",
        "--time",
        "at",
        "--every",
        "day",
        "--from",
        "2026-11-18",
        "--windows",
        "2",
        "--wait",
        "1h",
    ]
    called = script(
        "--state", tmp_path, "submit", "--job-endpoint", "localhost:1", *words, "--epsilon", "1", "--explain"
    )
    said, told = called.communicate(timeout=120)
    assert called.returncode == 0 and "each of the 2 windows is a release of its own" in said, told


def test_jars_are_fetched_once_by_two_who_need_them_at_once(tmp_path):
    """Maven's place is taken by a program that writes down each call."""
    maven = tmp_path / "mvn"
    maven.write_text(f'#!/bin/sh\necho called >> {tmp_path}/calls\nsleep 1\ntouch "${{8#*=}}/one.jar"\n')
    maven.chmod(0o755)
    code = f"import sys; sys.path.append({str(FOLDER.parent / 'shared')!r}); from pathlib import Path; import servers; "
    code += f"print(servers.jars(servers.Engine('Flink', Path({str(FOLDER)!r}))))"
    places = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    both = [subprocess.Popen([sys.executable, "-c", code], env=places, stdout=subprocess.PIPE, text=True) for _ in "ab"]
    said = [process.communicate(timeout=60)[0].splitlines()[-1] for process in both]
    assert said[0] == said[1] and os.listdir(said[0]) == ["one.jar"]
    assert (tmp_path / "calls").read_text() == "called\n"
