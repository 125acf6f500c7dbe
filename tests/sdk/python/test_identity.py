"""Tokens that say who a sandbox is, through the published Python SDK and a library that verifies."""

import hashlib
import json
import os
import time
import urllib.request
import uuid
from base64 import urlsafe_b64encode

import jwt
import pytest
from e2b import CommandExitException, Sandbox, Secret
from e2b.exceptions import InvalidArgumentException, SandboxException

API = os.environ["E2B_API_URL"]
HOST = "relying.test"
AUDIENCE = "sts.amazonaws.com"
IAM = {
    "tokens": {
        "aws": Secret.iam_token(audience=AUDIENCE, token_type="JWT-SVID"),
        "a key": Secret.iam_token(audience="//other/é", token_type="JWT-SVID"),
    }
}


def rules(name):
    return {
        "rules": {
            HOST: [{"transform": lambda ctx: {"headers": {"Authorization": f"Bearer {ctx.iam.tokens[name]}"}}}]
        }
    }


def ask(sandbox):
    """What the host has heard of a request."""
    path = f"/{uuid.uuid4()}"
    said = sandbox.commands.run(f"curl -sS --max-time 20 -H 'Authorization: own' https://{HOST}{path}")
    assert said.stdout == "heard"
    with open(os.environ["OUTSIDE_HEARD"]) as lines:
        heard = [it for it in map(json.loads, lines) if it["path"] == path]
    assert len(heard) == 1
    scheme, token = heard[0]["headers"]["authorization"].split(" ")
    assert scheme == "Bearer"
    return token


def read(path):
    with urllib.request.urlopen(f"{API}{path}") as answer:
        assert answer.headers["Cache-Control"] == "public, max-age=300"
        return json.load(answer)


def verified(token, audience=AUDIENCE):
    about = read("/.well-known/openid-configuration")
    assert about["issuer"] == API
    key = jwt.PyJWKClient(about["jwks_uri"]).get_signing_key_from_jwt(token)
    return jwt.decode(
        token,
        key,
        algorithms=about["id_token_signing_alg_values_supported"],
        audience=audience,
        issuer=about["issuer"],
        options={"require": ["iss", "sub", "aud", "iat", "exp", "jti"]},
    )


def test_a_host_hears_who_a_sandbox_is_and_can_verify_it():
    with Sandbox.create(timeout=120, iam=IAM, network=rules("aws")) as sandbox:
        token = ask(sandbox)
        claims = verified(token)
        info = sandbox.get_info()
        team, execution = claims["team_id"], claims["execution_id"]
        assert str(uuid.UUID(team)) == team and str(uuid.UUID(execution)) == execution
        assert (claims["sandbox_id"], claims["template_id"]) == (sandbox.sandbox_id, info.template_id)
        assert claims["sub"] == (
            f"spiffe://sandboxo/team/{team}/template/{info.template_id}"
            f"/sandbox/{sandbox.sandbox_id}/execution/{execution}"
        )
        assert claims["aud"] == AUDIENCE
        assert abs(claims["iat"] - time.time()) < 30
        assert claims["exp"] - claims["iat"] == 300
        names = {"iss", "sub", "aud", "iat", "exp", "jti", "team_id", "template_id", "sandbox_id", "execution_id"}
        assert set(claims) == names == set(read("/.well-known/openid-configuration")["claims_supported"])

        header = jwt.get_unverified_header(token)
        (key,) = read("/.well-known/jwks.json")["keys"]
        thumb = json.dumps({name: key[name] for name in ("crv", "kty", "x", "y")}, separators=(",", ":"))
        thumb = urlsafe_b64encode(hashlib.sha256(thumb.encode()).digest()).rstrip(b"=").decode()
        assert header == {"typ": "JWT", "alg": "ES256", "kid": thumb} and key["kid"] == thumb
        with pytest.raises(jwt.InvalidAudienceError):
            verified(token, "sts.amazonaws.com.")
        head, body, signature = token.split(".")
        with pytest.raises(jwt.InvalidSignatureError):
            verified(f"{head}.{body}.{signature[:-4]}{'AAAA' if signature[-4:] != 'AAAA' else 'BBBB'}")

        assert verified(ask(sandbox))["jti"] != claims["jti"], "each request has its own"
        assert "sts.amazonaws" not in str(info) and "sts.amazonaws" not in str(sandbox.get_info().network)
        inside = sandbox.commands.run("env; cat /proc/1/environ | tr '\\0' '\\n'; ls -aR /run /home", user="root")
        assert "amazonaws" not in inside.stdout and "eyJ" not in inside.stdout

        # An update does not know the names, and takes them all.
        sandbox.update_network(rules("a key"))
        assert verified(ask(sandbox), "//other/é")["sub"] == claims["sub"]
        sandbox.update_network(rules("nobody's"))
        with pytest.raises(CommandExitException):
            ask(sandbox)


def test_a_token_outlives_a_pause_and_is_of_another_execution():
    sandbox = Sandbox.create(timeout=120, iam=IAM, network=rules("aws"))
    before = verified(ask(sandbox))
    sandbox.pause()
    sandbox.connect(timeout=120)
    after = verified(ask(sandbox))
    assert before["execution_id"] != after["execution_id"]
    assert before["sub"].rsplit("/", 1)[0] == after["sub"].rsplit("/", 1)[0]
    sandbox.kill()


def test_what_starts_from_a_sandbox_is_somebody_else():
    with Sandbox.create(timeout=120, iam=IAM, network=rules("aws")) as sandbox:
        verified(ask(sandbox))
        (fork,) = sandbox.fork(timeout=120, count=1)
        # The rule came along, and the token did not.
        with pytest.raises(CommandExitException):
            ask(fork)
        fork.kill()
        snapshot = sandbox.create_snapshot()
        other = {"tokens": {"aws": Secret.iam_token(audience="mine", token_type="JWT-SVID")}}
        with Sandbox.create(snapshot.snapshot_id, timeout=120, iam=other, network=rules("aws")) as started:
            assert verified(ask(started), "mine")["sandbox_id"] == started.sandbox_id
        assert verified(ask(sandbox))["sandbox_id"] == sandbox.sandbox_id, "the source goes on"
        Sandbox.delete_snapshot(snapshot.snapshot_id)


@pytest.mark.parametrize(
    "tokens, field",
    [
        ({"a": Secret.iam_token(audience="", token_type="JWT-SVID")}, "iam.tokens.a.audience: "),
        ({"a": Secret.iam_token(audience="b", token_type="OIDC")}, "iam.tokens.a.tokenType: "),
        ({f"t{at}": Secret.iam_token(audience="b", token_type="JWT-SVID") for at in range(6)}, "iam.tokens: too many"),
    ],
)
def test_what_is_wrong_is_named(tokens, field):
    with pytest.raises((SandboxException, InvalidArgumentException), match=field):
        Sandbox.create(timeout=60, iam={"tokens": tokens})
