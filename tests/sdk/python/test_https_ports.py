"""Programs in a sandbox that insist on TLS, through the published Python SDK."""

import os
import subprocess
import urllib.error
import urllib.request

import pytest
from e2b import Sandbox

SERVER = """
import http.server, ssl
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"{type(self.connection).__name__} {self.path} {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Answer)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/tmp/cert.pem", "/tmp/key.pem")
if PORT == 8443:
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


def get(sandbox, port):
    headers = {"e2b-sandbox-id": sandbox.sandbox_id, "e2b-sandbox-port": str(port)}
    request = urllib.request.Request(os.environ["E2B_SANDBOX_URL"] + "/path?a=b", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as got:
            return got.status, got.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_program_with_a_certificate_of_its_own_is_reached(tmp_path):
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-days", "2", "-subj", "/CN=elsewhere.test", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(made, check=True, capture_output=True)
    with Sandbox.create(timeout=120, network={"https_ports": [8443, 8444]}) as sandbox:
        assert sandbox.get_info().network["https_ports"] == [8443, 8444]
        sandbox.files.write("/tmp/key.pem", key.read_text())
        sandbox.files.write("/tmp/cert.pem", cert.read_text())
        for port in (8443, 8444, 8080):
            script = SERVER.replace("PORT)", f"{port})").replace("PORT ==", f"{port} ==")
            sandbox.files.write(f"/tmp/{port}.py", script)
            sandbox.commands.run(f"python3 /tmp/{port}.py", background=True)
        status, said = get(sandbox, 8443)
        assert (status, said.split()[:2]) == (200, ["SSLSocket", "/path?a=b"])
        status, said = get(sandbox, 8080)
        assert (status, said.split()[:2]) == (200, ["socket", "/path?a=b"])
        status, said = get(sandbox, 8444)
        assert status == 502 and "port does not speak TLS" in said

        sandbox.update_network({"deny_out": ["8.8.8.8"]})
        sandbox.pause()
        sandbox.connect()
        assert sandbox.get_info().network["https_ports"] == [8443, 8444]
        assert get(sandbox, 8443)[0] == 200


@pytest.mark.parametrize("ports", [[0], [49983], [65536], list(range(1, 66))])
def test_what_is_no_port_is_refused(ports):
    with pytest.raises(Exception, match="network.httpsPorts"):
        Sandbox.create(network={"https_ports": ports})
