"""Builds of templates, from the published Python SDK to sandboxes of what was built.

Needs E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY, and images called e2bdev/base and ubuntu:22.04.
"""

import os
import uuid

import pytest
from e2b import BuildException, SandboxException, Sandbox, Template, wait_for_port


def name():
    return f"test-{uuid.uuid4().hex[:12]}"


def build(template, called, **options):
    lines = []
    info = Template.build(template, called, on_build_logs=lambda entry: lines.append(entry.message), **options)
    return info, lines


@pytest.fixture
def context(tmp_path):
    (tmp_path / "src" / "deep").mkdir(parents=True)
    run = tmp_path / "src" / "run"
    run.write_text("#!/bin/sh\necho ran\n")
    run.chmod(0o755)
    (tmp_path / "src" / "deep" / "data").write_text("data")
    os.symlink("deep/data", tmp_path / "src" / "link")
    (tmp_path / "one.conf").write_text("one")
    (tmp_path / "two.conf").write_text("two")
    return tmp_path


def test_a_sandbox_has_what_its_template_was_built_of(context):
    template = (
        Template(file_context_path=str(context))
        .from_image("ubuntu:22.04")
        .set_envs({"GREETING": "a\"b'c $(id)", "WIDER": "$PATH:/opt/bin"})
        .copy("src", "app")
        .copy("*.conf", "/etc/app/", user="root", mode=0o640)
        .run_cmd("./app/run > ran && sudo sh -c 'echo $GREETING > /greeting'")
        .set_user("other")
        .set_workdir("/srv/made")
        .set_start_cmd("python3 -m http.server 8123 --directory /etc/app", wait_for_port(8123))
    )
    called = name()
    info, lines = build(template, called, cpu_count=1, memory_mb=768)
    assert any("[builder 4/6] RUN ./app/run" in line for line in lines), "\n".join(lines)
    with Sandbox.create(called) as sandbox:
        def run(command):
            return sandbox.commands.run(command).stdout
        assert run("whoami; pwd") == "other\n/srv/made\n"
        assert run('printf "%s" "$GREETING"') == "a\"b'c $(id)"
        assert run('printf "%s" "$WIDER"').endswith(":/bin:/opt/bin")
        listed = run("cd /home/user && stat -c '%n %U:%G %a %s' app/run app/deep/data app/link /etc/app/*.conf ran")
        assert listed.splitlines() == [
            "app/run user:user 755 19",
            "app/deep/data user:user 644 4",
            "app/link user:user 777 9",
            "/etc/app/one.conf root:root 640 3",
            "/etc/app/two.conf root:root 640 3",
            "ran user:user 644 4",
        ]
        assert run("cat /home/user/app/link /home/user/ran") == "dataran\n"
        # It came up with the start command running.
        assert run("curl -s -o /dev/null -w '%{http_code}' localhost:8123/") == "200"
        assert info.template_id in run("cat /.e2b") and info.build_id in run("cat /.e2b")
        found = sandbox.get_info()
        assert (found.cpu_count, found.memory_mb) == (1, 768)

    # The same once more takes what it left, up to the step that is another.
    _, lines = build(template, called, cpu_count=1, memory_mb=768)
    assert len([line for line in lines if line.startswith("CACHED ")]) == 5, lines
    _, lines = build(template, called, cpu_count=1, memory_mb=768, skip_cache=True)
    assert not [line for line in lines if line.startswith("CACHED ")], lines

    # And others build on it, with resources of their own.
    child = name()
    build(Template().from_template(called).run_cmd("id -un > who; ls /home/user/app > seen"), child, memory_mb=1024)
    with Sandbox.create(child) as sandbox:
        assert sandbox.commands.run("cat who seen; echo $GREETING; pwd").stdout == "other\ndeep\nlink\nrun\na\"b'c $(id)\n/srv/made\n"
        assert sandbox.get_info().memory_mb == 1024
        assert sandbox.commands.run("grep MemTotal /proc/meminfo").stdout.split()[1] == str(1024 * 1024)


def test_files_are_copied_into_what_is_there_as_docker_does(context):
    prepare = "mkdir -m 711 there there/deep && echo old > there/run && echo kept > there/deep/kept && ln -s there door && ln -s /etc/hostname there/link"
    template = (
        Template(file_context_path=str(context))
        .from_base_image()
        .run_cmd(prepare)
        # Through a link to a folder; a file and a link in the way give way, a folder stays and is as the new one.
        .copy("src", "door")
        .copy("one.conf", "door")
        .copy("two.conf", "new/path/of/two", user="root:users", mode=0o4711)
        .copy("*.conf", "~/.conf.d")
    )
    called = name()
    build(template, called)
    with Sandbox.create(called) as sandbox:
        listed = sandbox.commands.run("find . ! -name '.bash*' ! -name .profile -printf '%P %u:%g %m %l\\n' | sort").stdout
        assert [line.rstrip() for line in listed.splitlines()] == [
            " user:user 755",
            ".conf.d user:user 755",
            ".conf.d/one.conf user:user 644",
            ".conf.d/two.conf user:user 644",
            "door user:user 777 there",
            "new root:users 755",
            "new/path root:users 755",
            "new/path/of root:users 755",
            "new/path/of/two root:users 4711",
            "there user:user 711",
            "there/deep user:user 755",
            "there/deep/data user:user 644",
            "there/deep/kept user:user 644",
            "there/link user:user 777 deep/data",
            "there/one.conf user:user 644",
            "there/run user:user 755",
        ]
        assert sandbox.files.read("there/run") == "#!/bin/sh\necho ran\n"


def test_a_build_that_fails_says_where_and_why():
    for template, why in [
        (Template().from_base_image().run_cmd("echo bad >&2; exit 3"), "failed to run command 'echo bad >&2; exit 3': exit status 3"),
        (Template().from_base_image().run_cmd("ls", user="ghost"), "command failed: unauthenticated: invalid username: 'ghost'"),
        (Template().from_image("10.0.0.1:5000/nobody/knows:this"), "image '10.0.0.1:5000/nobody/knows:this': 10.0.0.1:5000 is not on the public internet"),
        (Template().from_template("nothing-of-this-name"), "template 'nothing-of-this-name' not found"),
        (Template().from_base_image().set_start_cmd("exit 7", "false"), "failed to run command 'exit 7': exit status 7"),
    ]:
        called = name()
        with pytest.raises(BuildException) as failed:
            build(template, called)
        assert why in str(failed.value)
        # Nothing starts from it, and the name is taken.
        assert Template.exists(called)
        with pytest.raises(SandboxException):
            Sandbox.create(called)


def test_tags_name_versions():
    called = name()
    first, _ = build(Template().from_base_image().run_cmd("echo 1 > version"), f"{called}:v1")
    second, _ = build(Template().from_base_image().run_cmd("echo 2 > version"), f"{called}:v2", tags=["stable"])
    assert (first.template_id, sorted(second.tags)) == (second.template_id, ["stable", "v2"])
    Template.assign_tags(f"{called}:v1", ["old", "default"])

    def version(reference):
        with Sandbox.create(reference) as sandbox:
            return sandbox.files.read("/home/user/version").strip()

    assert [version(called), version(f"{called}:stable"), version(f"{called}:{second.build_id}")] == ["1", "2", "2"]
    found = {tag.tag: tag.build_id for tag in Template.get_tags(called)}
    assert found == {"v1": first.build_id, "old": first.build_id, "default": first.build_id, "v2": second.build_id, "stable": second.build_id}
    Template.remove_tags(called, ["v2", "stable"])
    for gone in (f"{called}:v2", f"{called}:{second.build_id}"):
        with pytest.raises(SandboxException):
            Sandbox.create(gone)
    with pytest.raises(Exception):
        Template.assign_tags(f"{called}:v1", ":bad")
