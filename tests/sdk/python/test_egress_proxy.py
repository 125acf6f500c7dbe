"""A sandbox's own proxy through the published Python SDK. The proxy is on this host, as the server
is told to allow, and leads every address to one that answers."""

import socket
import socketserver
import struct
import threading

import pytest
from e2b import Sandbox
from e2b.exceptions import InvalidArgumentException, SandboxException

OUTSIDE = "203.0.113.7"


class Socks(socketserver.ThreadingTCPServer):
    """SOCKS5 for one user."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, password):
        super().__init__(("127.0.0.1", 0), Connection)
        self.password = password
        self.asked = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"127.0.0.1:{self.server_address[1]}"


class Connection(socketserver.StreamRequestHandler):
    def take(self, length):
        data = self.rfile.read(length)
        assert len(data) == length
        return data

    def handle(self):
        version, count = self.take(2)
        assert version == 5 and 2 in self.take(count)
        self.request.sendall(b"\x05\x02")
        assert self.take(1) == b"\x01"
        username = self.take(self.take(1)[0]).decode()
        password = self.take(self.take(1)[0]).decode()
        if (username, password) != ("me", self.server.password):
            self.server.asked.append("a wrong password")
            self.request.sendall(b"\x01\x01")
            return
        self.request.sendall(b"\x01\x00")
        assert self.take(3) == b"\x05\x01\x00"
        kind = self.take(1)[0]
        host = socket.inet_ntoa(self.take(4)) if kind == 1 else self.take(self.take(1)[0]).decode()
        (port,) = struct.unpack(">H", self.take(2))
        self.server.asked.append((host, port))
        self.request.sendall(b"\x05\x00\x00\x01" + bytes(6))
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.take(1)
        body = b"by the proxy"
        self.request.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def network(server, password):
    return {"egress_proxy": {"address": server.address, "username": "me", "password": password}}


def fetch(sandbox, port=8080):
    # Of the standard library, so that no template has to have curl.
    script = (
        "import http.client\n"
        f"c = http.client.HTTPConnection('{OUTSIDE}', {port}, timeout=20)\n"
        "c.request('GET', '/')\n"
        "print(c.getresponse().read().decode())"
    )
    return sandbox.commands.run(f'python3 -c "{script}"').stdout.strip()


def test_connections_leave_by_the_proxy_of_the_sandbox():
    with Socks("hunter2") as server, Socks("hunter3") as other:
        with Sandbox.create(timeout=120, network=network(server, "hunter2")) as sandbox:
            assert fetch(sandbox) == "by the proxy"
            assert fetch(sandbox, port=80) == "by the proxy"
            assert server.asked == [(OUTSIDE, 8080), (OUTSIDE, 80)]

            shown = sandbox.get_info().network
            assert shown["egress_proxy"] == {"address": server.address, "username": "me"}
            assert "hunter2" not in sandbox.commands.run("env; cat /proc/1/environ").stdout

            sandbox.pause()
            sandbox.connect()
            assert fetch(sandbox) == "by the proxy"

            sandbox.update_network(network(other, "hunter3"))
            assert fetch(sandbox) == "by the proxy"
            assert (len(server.asked), other.asked) == (3, [(OUTSIDE, 8080)])

            sandbox.update_network(network(other, "wrong"))
            with pytest.raises(SandboxException, match="Connection"):
                fetch(sandbox)
            assert other.asked[1:] == ["a wrong password"]

            # Without one, and with nothing allowed: this host's own network is not to be asked.
            sandbox.update_network({"deny_out": ["0.0.0.0/0"]})
            assert "egress_proxy" not in sandbox.get_info().network
            with pytest.raises(SandboxException):
                fetch(sandbox)
            assert (len(server.asked), len(other.asked)) == (3, 2)


@pytest.mark.parametrize(
    ("proxy", "says"),
    [
        ({"address": "10.0.0.1:1080"}, "not on the public internet"),
        ({"address": "169.254.169.254:80"}, "not on the public internet"),
        ({"address": "proxy.example.com"}, "not a name or IPv4 address with a port"),
        ({"address": "proxy.example.com:1080", "password": "x"}, "username: a password needs one"),
        ({"address": "proxy.example.com:1080", "tls": True}, "egressProxy.tls: not supported"),
    ],
)
def test_what_is_no_proxy_is_refused(proxy, says):
    with pytest.raises((SandboxException, InvalidArgumentException), match=says):
        Sandbox.create(network={"egress_proxy": proxy})
