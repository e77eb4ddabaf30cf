"""The pool of workers for Kubernetes: the key that it reads, and a stranger who asks it for a worker; and its files there."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fixed_key import write_fixed_key
from tests.network import family, listening, stranger

FLINK = Path(__file__).resolve().parents[2] / "deploy" / "flink"


@pytest.mark.seconds
def test_a_stranger_gets_no_key_from_the_pool(tmp_path):
    """The attack: whoever reaches a pool is given a worker, which runs their code where the key is."""
    secret, key = tmp_path / "secret", tmp_path / "key"
    write_fixed_key(secret)
    secret.chmod(0o440)  # as Kubernetes mounts it, for a group
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, FLINK / "pool.py", f"--port={port}", f"--secret={secret}", f"--key-file={key}"]
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])  # of boot.py's Python
    process = subprocess.Popen(
        words, env={**os.environ, "PATH": path}, start_new_session=True, stderr=subprocess.DEVNULL
    )
    try:
        while not (seen := listening(process.pid)):
            assert process.poll() is None
            time.sleep(0.1)
        with stranger() as outside:
            reached = outside.reaches({port})
            told = "".join(outside.attack("pool", each, key, tmp_path / "stolen") for each in reached)
        held = [Path(f"/proc/{pid}/environ").read_bytes() for pid in family(process.pid)]
    finally:
        process.terminate()
        process.wait()
    assert not (tmp_path / "stolen").exists(), told
    assert reached == set() and {(each.address, each.port) for each in seen} == {("127.0.0.1", port)}
    assert key.read_bytes() == secret.read_bytes() and stat.S_IMODE(key.stat().st_mode) == 0o600
    assert not any(secret.read_bytes().strip() in each for each in held)


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FLINK / "kubernetes" / name).read_text()))


def test_no_file_for_kubernetes_binds_to_all_addresses_or_puts_the_key_into_an_environment():
    for path in (FLINK / "kubernetes").iterdir():
        text = path.read_text()
        assert "0.0.0.0" not in text and "HEADCOUNT_KEY\n" not in text and "secretKeyRef" not in text, path.name
    (cluster,) = documents("cluster.yaml")
    (worker,) = cluster["spec"]["taskManager"]["podTemplate"]["spec"]["containers"]
    assert worker["command"][1].endswith("pool.py") and "env" not in worker and "ports" not in worker


def test_policies_let_nobody_else_reach_the_pods():
    """Each pod has a policy of what comes in, which names who may, and the ports are those that Flink is told to take."""
    policies = {each["metadata"]["name"]: each["spec"] for each in documents("network.yaml")}
    (cluster,) = documents("cluster.yaml")
    assert set(policies) == {"headcount-task-managers", "headcount-job-manager", "headcount-job-server"}
    for spec in policies.values():
        assert spec["policyTypes"] == ["Ingress"] and spec["podSelector"]["matchLabels"]
        for rule in spec["ingress"]:
            assert rule["from"] and all(any(source.values()) for source in rule["from"]) and rule["ports"]
    (own,) = policies["headcount-task-managers"]["ingress"]
    assert own["from"] == [{"podSelector": {"matchLabels": {"app": cluster["metadata"]["name"]}}}]
    flink = cluster["spec"]["flinkConfiguration"]
    assert {each["port"] for each in own["ports"]} == {
        int(flink["taskmanager.rpc.port"]),
        int(flink["taskmanager.data.port"]),
    }
    assert 50000 not in {
        each["port"] for spec in policies.values() for rule in spec["ingress"] for each in rule["ports"]
    }
    server, _ = documents("job-server.yaml")
    assert policies["headcount-job-server"]["podSelector"] == server["spec"]["selector"]
