"""What a cluster here shows to the network while a job runs: nothing; and the orders of a stranger, which it never gets."""

import json
import signal

from tests.network import listening, stranger
from tests.runners.harness import MINUTES, histogram


def test_a_cluster_listens_on_loopback_alone_and_takes_no_orders_from_strangers(cluster, data, gate, tmp_path):
    """The attack: whoever reaches the job server has the task managers run a command of theirs, as the operator."""
    taken = tmp_path / "taken"
    command = tmp_path / "command"
    command.write_text(f"#!/bin/sh\nid > {taken}\n")
    command.chmod(0o755)
    client = cluster.open(*histogram(data, gate.input), "--output", tmp_path / "out")
    gate.wait(client)
    servers = {name: listening(process["pid"]) for name, process in cluster.state()["processes"].items()}
    servers["client"] = listening(client.pid)
    ports = {each.port for found in servers.values() for each in found}
    job = int(cluster.state()["job_endpoint"].rpartition(":")[2])
    told = []
    with stranger() as outside:
        reached = outside.reaches(ports)
        for artifacts in reached - {job} if job in reached else ():
            told.append(outside.attack("job", job, artifacts, "PROCESS", json.dumps({"command": str(command)})))
    client.send_signal(signal.SIGTERM)
    client.communicate(timeout=5 * MINUTES)
    assert not taken.exists(), told
    assert {name: {each for each in found if each.is_reached_from_outside} for name, found in servers.items()} == {
        name: set() for name in servers
    }
    assert reached == set()
    assert len(servers["job-server"]) == 2 and all(len(servers[name]) > 1 for name in servers if name != "client")
