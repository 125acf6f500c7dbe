"""The internet in one namespace: it tells names, and hears what is said to its host under TLS.

outside.py ADDRESS FOLDER, in a namespace that has the address.
FOLDER has the host's key and certificate, and gets a line of JSON for each request.
"""

import json
import pathlib
import socket
import ssl
import struct
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

address, folder = sys.argv[1], pathlib.Path(sys.argv[2])
writing = threading.Lock()


def answer(question):
    """Every name is at the address; nothing else is known of any."""
    end = question.index(0, 12) + 5
    kind, _ = struct.unpack("!HH", question[end - 4 : end])
    has = kind == 1
    head = question[:2] + struct.pack("!HHHHH", 0x8180, 1, int(has), 0, 0)
    record = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + socket.inet_aton(address)
    return head + question[12:end] + (record if has else b"")


def tell_names(names):
    while True:
        question, asker = names.recvfrom(4096)
        names.sendto(answer(question), asker)


class Host(BaseHTTPRequestHandler):
    def do_GET(self):
        line = json.dumps({"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}})
        with writing, open(folder / "heard", "a") as heard:
            heard.write(line + "\n")
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"heard")

    def log_message(self, *_):
        pass


names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
names.bind((address, 53))
threading.Thread(target=tell_names, args=(names,), daemon=True).start()
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder / "host.pem", folder / "host.key")
host = ThreadingHTTPServer((address, 443), Host)
host.socket = context.wrap_socket(host.socket, server_side=True, do_handshake_on_connect=False)
print("ready", flush=True)
host.serve_forever()
