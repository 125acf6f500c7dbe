"""The published Python SDK against a running appliance: each area once.

Needs E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY.
"""

import datetime
import time

import pytest
from e2b import (
    CommandExitException,
    FileType,
    NotFoundException,
    PtySize,
    Sandbox,
    SandboxException,
    SandboxQuery,
    TimeoutException,
)


@pytest.fixture(scope="module")
def sandbox():
    sandbox = Sandbox.create(timeout=300, metadata={"suite": "python sdk"}, envs={"GREETING": "a\"b'c\n$(id)"})
    yield sandbox
    sandbox.kill()


def test_commands_give_output_exit_codes_and_environment(sandbox):
    result = sandbox.commands.run("printf 'a\\n\\n\\nb'; echo oops >&2")
    assert (result.stdout, result.stderr, result.exit_code) == ("a\n\n\nb", "oops\n", 0)
    with pytest.raises(CommandExitException) as failed:
        sandbox.commands.run("seq 1 100000; exit 3")
    assert failed.value.exit_code == 3
    assert failed.value.stdout.endswith("99999\n100000\n")
    assert sandbox.commands.run('printf %s "$GREETING"').stdout == "a\"b'c\n$(id)"
    assert sandbox.commands.run("whoami; pwd").stdout == "user\n/home/user\n"
    assert sandbox.commands.run("whoami", user="root").stdout == "root\n"


def test_servers_of_a_template_learn_the_environment_of_their_sandbox(sandbox):
    ask = "curl -s {} http://localhost:49983/envs | python3 -c 'import json, sys; print(json.load(sys.stdin).get(\"GREETING\"))'"
    assert sandbox.commands.run(ask.format("")).stdout == "a\"b'c\n$(id)\n"
    # Root has to know the token, and so has whoever comes by the front door.
    assert sandbox.commands.run(ask.format(""), user="root").stdout == "None\n"
    assert sandbox.commands.run("curl -s -o /dev/null -w '%{http_code}' http://localhost:49983/metrics").stdout == "401"


def test_row_09_a_command_past_its_time_is_killed(sandbox):
    with pytest.raises(TimeoutException):
        sandbox.commands.run("sleep 61", timeout=1)
    assert sandbox.commands.run("pgrep -f 'sleep 6[1]' || true").stdout == ""


def test_background_commands_take_input_and_can_be_found_again(sandbox):
    command = sandbox.commands.run("cat > /tmp/typed", background=True, stdin=True)
    for line in ("one\n", "zwei\n", "三\n"):
        sandbox.commands.send_stdin(command.pid, line)
    assert command.pid in [process.pid for process in sandbox.commands.list()]
    sandbox.commands.close_stdin(command.pid)
    assert command.wait().exit_code == 0
    assert sandbox.files.read("/tmp/typed") == "one\nzwei\n三\n"

    ticking = sandbox.commands.run("while true; do echo tick; sleep 0.1; done", background=True, timeout=0)
    again = sandbox.commands.connect(ticking.pid)
    for stdout, _stderr, _pty in again:
        assert stdout.strip() == "tick"
        break
    assert sandbox.commands.kill(ticking.pid)
    assert not sandbox.commands.kill(ticking.pid)


def test_files_come_back_as_they_went(sandbox):
    every_byte = bytes(range(256)) * 4096
    sandbox.files.write("/tmp/deep/er/日本 \"x\".bin", every_byte)
    assert bytes(sandbox.files.read("/tmp/deep/er/日本 \"x\".bin", format="bytes")) == every_byte
    assert sandbox.files.make_dir("folder")
    assert not sandbox.files.make_dir("folder")
    sandbox.files.write("folder/a.txt", "a")
    sandbox.files.rename("folder/a.txt", "folder/b.txt")
    [entry] = sandbox.files.list("folder")
    assert (entry.name, entry.type, entry.path, entry.owner) == ("b.txt", FileType.FILE, "/home/user/folder/b.txt", "user")
    sandbox.files.remove("folder")
    assert not sandbox.files.exists("folder")
    with pytest.raises(NotFoundException):
        sandbox.files.read("folder/b.txt")


def test_programs_and_libraries_that_came_as_files_run(sandbox):
    copied = "cp /bin/bash /tmp/own && /tmp/own -c 'echo runs' && rm /tmp/own"
    assert sandbox.commands.run(copied).stdout == "runs\n"
    sandbox.files.write("/tmp/uploaded", bytes(sandbox.files.read("/bin/cat", format="bytes")))
    assert sandbox.commands.run("chmod +x /tmp/uploaded; echo runs | /tmp/uploaded").stdout == "runs\n"
    library = "mkdir /tmp/lib && cp /lib/x86_64-linux-gnu/libc.so.6 /tmp/lib/"
    mapped = "LD_LIBRARY_PATH=/tmp/lib cat /proc/self/maps | grep -o -m1 /tmp/lib/libc.so.6"
    assert sandbox.commands.run(f"{library} && {mapped}").stdout == "/tmp/lib/libc.so.6\n"


def test_watching_a_folder(sandbox):
    sandbox.files.make_dir("watched")
    watcher = sandbox.files.watch_dir("watched")
    sandbox.files.write("watched/new.txt", "x")
    seen = [(event.name, event.type.value) for event in watcher.get_new_events()]
    assert seen == [("new.txt", "create"), ("new.txt", "chmod"), ("new.txt", "write")]
    watcher.stop()


def test_a_terminal(sandbox):
    seen = bytearray()
    terminal = sandbox.pty.create(size=PtySize(rows=24, cols=80), timeout=60)
    sandbox.pty.resize(terminal.pid, PtySize(rows=40, cols=133))
    sandbox.pty.send_stdin(terminal.pid, b"tput cols; locale charmap; exit 7\n")
    with pytest.raises(CommandExitException) as ended:
        terminal.wait(on_pty=seen.extend)
    assert ended.value.exit_code == 7
    assert b"133" in seen and b"UTF-8" in seen


def test_listing_and_life(sandbox):
    page = Sandbox.list(query=SandboxQuery(metadata={"suite": "python sdk"}))
    [listed] = [s for s in page.next_items() if s.sandbox_id == sandbox.sandbox_id]
    assert listed.metadata == {"suite": "python sdk"}
    before = sandbox.get_info().end_at
    sandbox.set_timeout(600)
    after = sandbox.get_info().end_at
    assert after - before > datetime.timedelta(seconds=250)
    same = Sandbox.connect(sandbox.sandbox_id)
    assert same.is_running()
    assert same.get_info().end_at >= after

    short = Sandbox.create(timeout=1)
    limit = time.monotonic() + 10
    while short.is_running() and time.monotonic() < limit:
        time.sleep(0.1)
    assert not short.is_running()
    gone = Sandbox.create()
    assert gone.kill()
    assert not gone.kill()
    assert not gone.is_running()


def test_row_119_a_filter_finds_any_text():
    values = {"k": "a b&c=ü", "100%": "+%41"}
    marked = Sandbox.create(metadata=values)
    try:
        for key, value in values.items():
            page = Sandbox.list(query=SandboxQuery(metadata={key: value}))
            assert [s.sandbox_id for s in page.next_items()] == [marked.sandbox_id]
    finally:
        marked.kill()


def test_metrics_appear(sandbox):
    limit = time.monotonic() + 30
    while not (metrics := sandbox.get_metrics()) and time.monotonic() < limit:
        time.sleep(0.5)
    assert metrics[0].cpu_count > 0
    assert metrics[0].mem_total > 0
    assert metrics[0].disk_total > 0


def test_the_network_refuses_what_it_must():
    closed = Sandbox.create(allow_internet_access=False)
    try:
        for target in ("169.254.169.254", "10.0.0.1", "192.168.0.1", "8.8.8.8"):
            with pytest.raises(CommandExitException):
                closed.commands.run(f"curl -s --connect-timeout 3 --max-time 5 http://{target}/")
    finally:
        closed.kill()


def test_git_works_in_the_base_template(sandbox):
    sandbox.git.init("/home/user/repo", initial_branch="main")
    sandbox.files.write("/home/user/repo/a", "a")
    sandbox.git.add("/home/user/repo", ["a"])
    status = sandbox.git.status("/home/user/repo")
    assert [file.name for file in status.file_status] == ["a"]


def test_bad_input_is_told_apart():
    with pytest.raises(SandboxException, match="404: template 'no-such-template' not found"):
        Sandbox.create("no-such-template")
    with pytest.raises(NotFoundException):
        Sandbox.connect("nonexistingsandbox")
    with pytest.raises(SandboxException, match="400: timeout: must be greater than 0"):
        Sandbox.create(timeout=-1)
    with pytest.raises(SandboxException, match="400: network: "):
        Sandbox.create(network={"deny_out": ["not an address"]})
