"""Secrets through the published Python SDK."""

import uuid

import pytest
from e2b import Sandbox, Secret
from e2b.exceptions import InvalidArgumentException, SandboxException, SecretException, SecretNotFoundException


def test_secrets_are_stored_listed_replaced_and_destroyed():
    name = f"key-{uuid.uuid4()}"
    made = Secret.create(name, "s3cr3t", metadata={"owner": "me"})
    assert (made.name, made.version, made.metadata) == (name, 1, {"owner": "me"})
    with pytest.raises(SecretException):
        Secret.create(name.upper(), "other")
    with pytest.raises(Exception, match="value: "):
        Secret.create(f"{name}-2", "a\nb")
    assert Secret.get_info(name).secret_id == made.secret_id
    listed, pages = [], Secret.list(limit=1)
    while pages.has_next:
        listed += [it.name for it in pages.next_items()]
    assert listed.count(name) == 1
    assert Secret.update(made.secret_id, "another").version == 2
    assert Secret.get_info(made.secret_id).metadata == {"owner": "me"}
    assert Secret.exists(name)
    assert Secret.destroy(name)
    assert not Secret.destroy(name)
    assert not Secret.exists(name)
    with pytest.raises(SecretNotFoundException):
        Secret.get_info(made.secret_id)


def test_rules_name_secrets_and_show_their_names_only():
    name = f"key-{uuid.uuid4()}"
    Secret.create(name, "s3cr3t")

    def rules(value):
        return {"rules": {"api.example.com": [{"transform": {"headers": {"Authorization": value}}}]}}

    with Sandbox.create(timeout=60, network=rules(f"Bearer {Secret.fill(name)}")) as sandbox:
        shown = str(sandbox.get_info().network)
        assert name in shown and "s3cr3t" not in shown
        assert sandbox.commands.run("env; cat /proc/1/environ").stdout.count("s3cr3t") == 0
        with pytest.raises((SandboxException, InvalidArgumentException), match="placeholder"):
            sandbox.update_network(rules("${e2b.unknown.a}"))
    assert Secret.destroy(name)
