"""Volumes through the published Python SDK.

Needs E2B_VOLUME_API_URL beside what test_e2b.py needs.
"""

import io
import os
import urllib.error
import urllib.parse
import urllib.request
import uuid

import pytest
from e2b import Sandbox, Volume
from e2b.exceptions import NotFoundException, SandboxException, VolumeException
from e2b.volume.types import VolumeFileType


@pytest.fixture
def volume():
    volume = Volume.create(f"data-{uuid.uuid4()}")
    yield volume
    assert Volume.destroy(volume.volume_id)


def test_volumes_are_made_listed_and_destroyed():
    name = f"my_data-{uuid.uuid4()}"
    volume = Volume.create(name)
    assert (volume.name, bool(volume.token)) == (name, True)
    assert [(it.volume_id, it.name) for it in Volume.list() if it.name == name] == [(volume.volume_id, name)]
    assert Volume.get_info(volume.volume_id).name == name
    with pytest.raises(VolumeException):
        Volume.create(name)
    with pytest.raises(VolumeException):
        Volume.create("not/a/name")
    assert Volume.destroy(volume.volume_id)
    assert not Volume.destroy(volume.volume_id)
    with pytest.raises(NotFoundException):
        Volume.get_info(volume.volume_id)
    with pytest.raises(NotFoundException):
        volume.get_info("/")


def test_files_come_back_as_they_went(volume):
    every_byte = bytes(range(256)) * 4096
    written = volume.write_file("/every byte.bin", every_byte)
    assert (written.name, written.type, written.size) == ("every byte.bin", VolumeFileType.FILE, len(every_byte))
    assert bytes(volume.read_file("/every byte.bin", format="bytes")) == every_byte
    assert b"".join(volume.read_file("/every byte.bin", format="stream")) == every_byte
    # A connection of its own, with a token of its own.
    again = Volume.connect(volume.volume_id)
    made = again.make_dir("/deep/er", uid=1000, gid=1000, mode=0o750, force=True)
    assert (made.type, made.uid, made.mode) == (VolumeFileType.DIRECTORY, 1000, 0o750)
    again.write_file("/deep/er/日本 \"x\".txt", io.BytesIO("ü".encode()), mode=0o600)
    assert volume.read_file("/deep/er/日本 \"x\".txt") == "ü"
    volume.write_file("/deep/er/日本 \"x\".txt", "", force=True)
    assert volume.read_file("/deep/er/日本 \"x\".txt") == ""
    assert [entry.path for entry in volume.list("/")] == ["/deep", "/every byte.bin"]
    assert [entry.path for entry in volume.list("/deep", depth=5)] == ["/deep/er", "/deep/er/日本 \"x\".txt"]
    assert volume.update_metadata("/deep", mode=0o700).mode == 0o700
    volume.remove("/deep")
    assert not volume.exists("/deep")
    with pytest.raises(NotFoundException):
        volume.read_file("/deep/er")
    with pytest.raises(NotFoundException):
        volume.write_file("/none/file", "x")
    usual = volume.write_file("/none/file", "x", force=True)
    assert (usual.uid, usual.gid, usual.mode) == (1000, 1000, 0o666)


def answer(volume, path, token):
    url = f"{os.environ['E2B_VOLUME_API_URL']}/volumecontent/{volume}/file?path={path}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as got:
            return got.status
    except urllib.error.HTTPError as error:
        return error.code


def test_row_38_nothing_outside_is_reached(volume):
    other = Volume.create(f"other-{uuid.uuid4()}")
    volume.write_file("/file", "x")
    assert answer(volume.volume_id, "/file", volume.token) == 200
    for token in ("", "x", other.token, volume.token[:-1], os.environ["E2B_API_KEY"]):
        assert answer(volume.volume_id, "/file", token) == 401
    for path in ("../../etc/passwd", "..%2f..%2fetc%2fpasswd", "/proc/self/root/etc/passwd", "%00", "/a/../../b"):
        assert answer(volume.volume_id, path, volume.token) in (400, 404)
    for name in ("..", "..%2f..%2fetc", urllib.parse.quote("../" + other.volume_id, safe="")):
        assert answer(name, "/file", volume.token) in (401, 404)
    assert Volume.destroy(other.volume_id)


def test_sandboxes_share_a_volume_which_outlives_them(volume):
    volume.write_file("/greeting", "hello\n")
    one = Sandbox.create(timeout=300, volume_mounts={"/data": volume})
    two = Sandbox.create(timeout=300, volume_mounts={"/home/user/shared": volume.name})
    assert one.commands.run("cat /data/greeting").stdout == "hello\n"
    one.files.write("/data/of one", "1")
    assert two.files.read("shared/of one") == "1"
    two.commands.run("echo 2 > 'shared/of two'")
    assert volume.read_file("/of two") == "2\n"
    mounts = one.get_info().volume_mounts
    assert mounts == [{"name": volume.name, "path": "/data"}]
    with pytest.raises(VolumeException):
        Volume.destroy(volume.volume_id)
    assert two.kill()

    counter = one.commands.run("n=0; while :; do n=$((n+1)); echo $n; sleep 0.1; done > /data/count", background=True)
    one.pause()
    with pytest.raises(VolumeException):
        Volume.destroy(volume.volume_id)
    volume.write_file("/meanwhile", "x")
    one.connect(timeout=300)
    before = int(one.commands.run("sleep 0.3; tail -n 1 /data/count").stdout)
    assert int(one.commands.run("sleep 0.3; tail -n 1 /data/count").stdout) > before
    assert one.files.read("/data/meanwhile") == "x"
    assert one.commands.kill(counter.pid)

    [copy] = one.fork()
    copy.files.write("/data/of copy", "3")
    assert one.files.read("/data/of copy") == "3"
    snapshot = one.create_snapshot()
    assert copy.kill() and one.kill()
    later = Sandbox.create(snapshot.snapshot_id, timeout=300)
    assert later.files.read("/data/of copy") == "3"
    assert later.kill() and Sandbox.delete_snapshot(snapshot.snapshot_id)


@pytest.mark.parametrize("path", ["data", "/", "/data/../proc", "/proc/x", "//data", "/dev/shm/x", "/.sandboxo/volumes", "/a/"])
def test_row_38_mount_paths_are_checked(volume, path):
    with pytest.raises(SandboxException, match=r"volumeMounts\[0\].path: "):
        Sandbox.create(volume_mounts={path: volume})


def test_only_volumes_of_the_team_are_mounted():
    for name in ("none", "../x", "/etc"):
        with pytest.raises(SandboxException, match=r"volumeMounts\[0\].name: volume '.*' not found"):
            Sandbox.create(volume_mounts={"/data": name})
