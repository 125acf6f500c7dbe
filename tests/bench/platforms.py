#!/usr/bin/env python3
"""What a template's platform changes: the same work in sandboxes on ptrace and on systrap.

    . .dev/env && tests/bench/platforms.py ARCHIVE

ARCHIVE is a root file system with python3 and bash, such as the archive of `base` in the cache.
Makes two templates of it and a sandbox of each, prints medians as JSON, and removes both.
"""

import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request

SANDBOXO = os.environ.get("SANDBOXO", ".dev/bin/sandboxo")
URL = os.environ["E2B_API_URL"]
PLATFORMS = ["ptrace", "systrap"]

# Runs inside. Each entry is the median of seven runs, in milliseconds.
WORK = r"""
import json, os, statistics, subprocess, time

def getppid():
    for _ in range(10000):
        os.getppid()

def small_files():
    for number in range(300):
        with open(f"/tmp/small-{number}", "w") as file:
            file.write("x" * 100)
        os.unlink(f"/tmp/small-{number}")

def programs():
    subprocess.run(["/bin/bash", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done"])

def compute():
    total = 0
    for number in range(1000000):
        total += number

answer = {}
for work in (getppid, small_files, programs, compute):
    work()
    took = []
    for _ in range(7):
        begin = time.perf_counter()
        work()
        took.append((time.perf_counter() - begin) * 1000)
    answer[work.__name__] = round(statistics.median(took), 2)
print(json.dumps(answer))
"""


def cli(*words):
    done = subprocess.run([SANDBOXO, *words], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def idle_percent(sandbox):
    """Of a core, over ten seconds in which nothing is asked of the sandbox."""

    def used():
        request = urllib.request.Request(
            f"{URL}/sandboxes/{sandbox}/metrics",
            headers={"X-API-Key": os.environ["E2B_API_KEY"]},
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)[-1]["cpuUsedPct"]

    time.sleep(10)
    return round(used(), 2)


def measure(platform, archive):
    name = f"bench-{platform}"
    cli("template", "import", "--name", name, "--platform", platform, archive)
    sandbox = None
    try:
        starts = []
        for _ in range(5):
            if sandbox:
                cli("sandbox", "kill", sandbox)
            begin = time.perf_counter()
            made = json.loads(cli("sandbox", "create", name, "--json"))
            starts.append((time.perf_counter() - begin) * 1000)
            sandbox = made.get("sandboxID") or made["id"]
        answer = json.loads(cli("sandbox", "exec", sandbox, "--", "python3", "-c", WORK))
        answer["create"] = round(statistics.median(starts), 1)
        answer["idle_cpu_percent"] = idle_percent(sandbox)
        return answer
    finally:
        if sandbox:
            cli("sandbox", "kill", sandbox)
        cli("template", "rm", name)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    # In turn, so that both meet the same machine.
    results = {platform: measure(platform, sys.argv[1]) for platform in PLATFORMS}
    ptrace, systrap = (results[platform] for platform in PLATFORMS)
    ratios = {work: round(systrap[work] / ptrace[work], 2) for work in ptrace if ptrace[work]}
    print(json.dumps({**results, "systrap_to_ptrace": ratios}, indent=2))


main()
