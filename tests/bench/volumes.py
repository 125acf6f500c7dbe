#!/usr/bin/env python3
"""What volumes cost a sandbox: creates, pauses and resumes with none, with one and with two.

    . .dev/env && tests/bench/volumes.py [ROUNDS]

Makes two volumes, prints medians in milliseconds as JSON, and removes them.
"""

import json
import os
import statistics
import sys
import time
import urllib.request

URL = os.environ["E2B_API_URL"]
VOLUMES = ["bench-volumes-1", "bench-volumes-2"]
# The pool is full again by then.
PAUSE_BETWEEN = 1.2


def ask(method, path, body=None):
    """The answer, and how long it took."""
    headers = {"X-API-Key": os.environ["E2B_API_KEY"], "Content-Type": "application/json"}
    request = urllib.request.Request(URL + path, json.dumps(body).encode() if body else None, headers, method=method)
    begun = time.perf_counter()
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None, (time.perf_counter() - begun) * 1000


def round_of(count, took):
    mounts = [{"name": name, "path": f"/data/{name}"} for name in VOLUMES[:count]]
    sandbox, create = ask("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 60, "volumeMounts": mounts})
    path = f"/sandboxes/{sandbox['sandboxID']}"
    _, pause = ask("POST", f"{path}/pause", {"memory": True})
    _, resume = ask("POST", f"{path}/connect", {"timeout": 60})
    ask("DELETE", path)
    for what, time_taken in (("create", create), ("pause", pause), ("resume", resume)):
        took.setdefault(what, {}).setdefault(count, []).append(time_taken)
    time.sleep(PAUSE_BETWEEN)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    made = [ask("POST", "/volumes", {"name": name})[0]["volumeID"] for name in VOLUMES]
    try:
        took = {}
        for number in range(rounds + 1):
            # The first mounts the volumes.
            for count in range(3):
                round_of(count, {} if number == 0 else took)
    finally:
        for volume in made:
            ask("DELETE", f"/volumes/{volume}")
    medians = {what: {count: round(statistics.median(all), 1) for count, all in by.items()} for what, by in took.items()}
    print(json.dumps(medians))


main()
