"""The published Python SDK against an appliance that freezes what nobody uses after a second.

Needs E2B_API_URL, E2B_SANDBOX_URL, E2B_API_KEY and SANDBOXO_TOKEN.
"""

import json
import os
import time
import urllib.request

import pytest
from e2b import Sandbox


def frozen():
    request = urllib.request.Request(
        os.environ["E2B_API_URL"] + "/admin/v1/zone",
        headers={"Authorization": "Bearer " + os.environ["SANDBOXO_TOKEN"]},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)["capacity"]["frozen"]


def is_frozen():
    until = time.monotonic() + 60
    while frozen() != 1:
        assert time.monotonic() < until, "it is not frozen"
        time.sleep(0.05)


def get(sandbox, port, path):
    request = urllib.request.Request(
        os.environ["E2B_SANDBOX_URL"] + path,
        headers={"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(port)},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


@pytest.fixture
def sandbox():
    sandbox = Sandbox.create(timeout=300)
    yield sandbox
    # Killed as it is, frozen or not.
    assert sandbox.kill()


def test_whatever_asks_is_answered(sandbox):
    sandbox.commands.run("echo served > index.html")
    server = sandbox.commands.run("exec python3 -m http.server 8080", background=True, timeout=0)
    sandbox.commands.run("until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8080))'; do sleep 0.1; done")
    server.disconnect()

    is_frozen()
    assert get(sandbox, 8080, "/index.html") == b"served\n"
    is_frozen()
    assert sandbox.commands.run("echo awake").stdout == "awake\n"
    is_frozen()
    assert sandbox.files.read("index.html") == "served\n"
    is_frozen()
    again = Sandbox.connect(sandbox.sandbox_id)
    assert server.pid in [process.pid for process in again.commands.list()]
    assert sandbox.get_info().state == "running"


def test_a_frozen_one_is_paused_and_resumed(sandbox):
    sandbox.files.write("kept", "kept")
    is_frozen()
    assert sandbox.pause()
    sandbox.connect()
    is_frozen()
    assert sandbox.files.read("kept") == "kept"
