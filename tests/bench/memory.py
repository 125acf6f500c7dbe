#!/usr/bin/env python3
"""Whether the appliance's memory grows with the sandboxes that have come and gone.

    . .dev/env && tests/bench/memory.py PID [SANDBOXES]

Creates sandboxes one after the other, runs a command in each and kills it. Prints the memory that
is the process's own (RssAnon, MiB) after every 250 of them. Needs the e2b package.
"""

import sys
import time

from e2b import Sandbox

EVERY = 250


def memory(pid):
    with open(f"/proc/{pid}/status") as status:
        own = next(line for line in status if line.startswith("RssAnon"))
    return int(own.split()[1]) / 1024


def main():
    pid, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 6500
    begun = time.monotonic()
    for done in range(count + 1):
        if done % EVERY == 0:
            print(f"{done} sandboxes: {memory(pid):.1f} MiB, {time.monotonic() - begun:.0f} s", flush=True)
        sandbox = Sandbox.create(timeout=60)
        sandbox.commands.run("echo hi")
        sandbox.kill()


main()
