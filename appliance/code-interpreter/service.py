"""Runs code in Jupyter kernels for clients of E2B's code interpreter, on port 49999.

A context is one kernel. What a kernel says goes to the client as it comes, one JSON object a line.
"""

import ast
import json
import os
import queue
import threading
import time
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpecManager

PORT = 49999
HOME = "/home/user"
ENVS = "http://127.0.0.1:49983/envs"
STARTS_WITHIN = 60
# A client that hung up is noticed by this.
KEEPALIVE = 5
# What an interrupted kernel does not end within, it does not end at all.
INTERRUPTED_WITHIN = 10
MAX_BODY = 16 << 20

NAMES = {"py": "python", "js": "javascript", "ts": "typescript", "sh": "bash"}
FIELDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "application/vnd.e2b.data+json": "data",
}


class Refused(Exception):
    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def languages():
    """What is installed, by what clients call it."""
    specs = KernelSpecManager().get_all_specs()
    return {spec["spec"]["language"].lower(): name for name, spec in specs.items()}


class Context:
    def __init__(self, language, cwd):
        kernel = languages().get(language)
        if kernel is None:
            raise Refused(400, f"there is no kernel for {language!r} here")
        self.id = str(uuid.uuid4())
        self.language = language
        self.cwd = cwd
        self.turn = threading.Lock()
        self.globals = {}
        os.makedirs(cwd, exist_ok=True)
        self.manager = KernelManager(kernel_name=kernel)
        self.manager.start_kernel(cwd=cwd)
        self.attach()

    def attach(self):
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=STARTS_WITHIN)

    def restart(self):
        self.client.stop_channels()
        self.manager.restart_kernel(now=True)
        self.globals = {}
        self.attach()

    def end(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def view(self):
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    def execute(self, code, envs, own, send):
        """`envs` are the sandbox's, `own` of this call alone."""
        with self.turn:
            fresh = {name: value for name, value in envs.items() if self.globals.get(name) != value}
            self.globals.update(fresh)
            self.quietly(self.set({**fresh, **own}))
            try:
                self.run(code, send)
            finally:
                self.quietly(self.unset(own))

    def set(self, envs):
        if not envs:
            return None
        if self.language == "bash":
            return "\n".join(f"export {name}={quoted(value)}" for name, value in envs.items())
        if self.language == "python":
            return f"import os as _os; _os.environ.update({envs!r}); del _os"
        return None

    def unset(self, envs):
        before = {name: self.globals[name] for name in envs if name in self.globals}
        gone = [name for name in envs if name not in before]
        if not envs:
            return None
        if self.language == "bash":
            return "\n".join(filter(None, [self.set(before), *(f"unset {name}" for name in gone)]))
        if self.language == "python":
            return (
                f"import os as _os; _os.environ.update({before!r}); "
                f"[_os.environ.pop(_name, None) for _name in {gone!r}]; del _os"
            )
        return None

    def quietly(self, code):
        if code:
            self.run(code, lambda line: None, silent=True)

    def run(self, code, send, silent=False):
        asked = self.client.execute(
            code, silent=silent, store_history=not silent, allow_stdin=False
        )
        said = time.monotonic()
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                if not self.manager.is_alive():
                    self.restart()
                    send(error("KernelDied", "the kernel ended, and was started anew"))
                    return
                if time.monotonic() - said > KEEPALIVE:
                    said = time.monotonic()
                    try:
                        send({"type": "keepalive"})
                    except OSError:
                        self.interrupt(asked)
                        raise
                continue
            if message["parent_header"].get("msg_id") != asked:
                continue
            line = told(message)
            if line == "idle":
                return
            if line is not None:
                try:
                    send(line)
                except OSError:
                    self.interrupt(asked)
                    raise

    def interrupt(self, asked):
        """Whoever asked has left: the next one shall not wait for it."""
        self.manager.interrupt_kernel()
        until = time.monotonic() + INTERRUPTED_WITHIN
        while time.monotonic() < until:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") == asked and told(message) == "idle":
                return
        self.restart()


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def error(name, value, traceback=""):
    return {"type": "error", "name": name, "value": value, "traceback": traceback}


def told(message):
    """The line for a client; `idle` is the end."""
    kind, content = message["header"]["msg_type"], message["content"]
    if kind == "stream":
        text, at = content["text"], int(time.time() * 1e9)
        return {"type": content["name"], "text": text, "timestamp": at}
    if kind in ("execute_result", "display_data"):
        return result(content["data"], kind == "execute_result")
    if kind == "error":
        return error(content["ename"], content["evalue"], "\n".join(content["traceback"]))
    if kind == "execute_input":
        return {"type": "number_of_executions", "execution_count": content["execution_count"]}
    if kind == "status" and content["execution_state"] == "idle":
        return "idle"
    return None


def result(data, is_main):
    line = {"type": "result", "is_main_result": is_main}
    extra = {}
    for mime, value in data.items():
        if mime in FIELDS:
            line[FIELDS[mime]] = value
        else:
            extra[mime] = value
    if extra:
        line["extra"] = extra
    text = line.get("text")
    if text and text[0] in "'\"" and text[0] == text[-1]:
        # A text is shown as itself.
        try:
            line["text"] = str(ast.literal_eval(text))
        except (ValueError, SyntaxError):
            pass
    return line


class Contexts:
    def __init__(self):
        self.all = {}
        self.defaults = {}
        self.changing = threading.Lock()

    def create(self, language, cwd):
        context = Context(NAMES.get(language, language), cwd)
        self.all[context.id] = context
        return context

    def default(self, language):
        language = NAMES.get(language, language)
        with self.changing:
            known = self.all.get(self.defaults.get(language))
            if known is None:
                known = self.create(language, HOME)
                self.defaults[language] = known.id
            return known

    def get(self, id):
        try:
            return self.all[id]
        except KeyError:
            raise Refused(404, f"context {id} not found") from None


CONTEXTS = Contexts()


def sandbox_envs():
    """Set at the sandbox's creation, long after this program began."""
    try:
        with urllib.request.urlopen(ENVS, timeout=2) as answer:
            return {name: str(value) for name, value in json.load(answer).items()}
    except (OSError, ValueError):
        return {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_words):
        pass

    def route(self):
        parts = [part for part in self.path.split("?")[0].split("/") if part]
        match (self.command, parts):
            case ("GET", ["health"]):
                self.answer(200, b"OK", "text/plain")
            case ("POST", ["execute"]):
                self.execute(self.body())
            case ("GET", ["contexts"]):
                self.json([context.view() for context in list(CONTEXTS.all.values())])
            case ("POST", ["contexts"]):
                body = self.body()
                cwd = body.get("cwd") or HOME
                self.json(CONTEXTS.create(body.get("language") or "python", cwd).view())
            case ("POST", ["contexts", id, "restart"]):
                context = CONTEXTS.get(id)
                with context.turn:
                    context.restart()
                self.answer(204)
            case ("DELETE", ["contexts", id]):
                CONTEXTS.get(id).end()
                del CONTEXTS.all[id]
                self.answer(204)
            case _:
                raise Refused(404, "there is nothing here")

    def execute(self, body):
        id, language = body.get("context_id"), body.get("language")
        if id and language:
            raise Refused(400, "give a context or a language, not both")
        context = CONTEXTS.get(id) if id else CONTEXTS.default(language or "python")
        envs = sandbox_envs()
        own = {name: str(value) for name, value in (body.get("env_vars") or {}).items()}
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            context.execute(body.get("code") or "", envs, own, self.line)
            self.line({"type": "end_of_execution"})
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def line(self, line):
        text = json.dumps(line).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
        self.wfile.flush()

    def body(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            raise Refused(413, f"a request has at most {MAX_BODY >> 20} MiB")
        return json.loads(self.rfile.read(length) or b"{}")

    def json(self, value):
        self.answer(200, json.dumps(value).encode(), "application/json")

    def answer(self, status, body=b"", kind=None):
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_one(self):
        try:
            self.route()
        except Refused as refused:
            self.answer(refused.status, str(refused).encode(), "text/plain")
        except json.JSONDecodeError:
            self.answer(400, b"the body is not JSON", "text/plain")
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            self.answer(500, f"{type(error).__name__}: {error}".encode(), "text/plain")

    do_GET = do_POST = do_DELETE = handle_one


if __name__ == "__main__":
    server = ThreadingHTTPServer(("0.0.0.0", PORT), Handler)
    CONTEXTS.default("python")
    server.serve_forever()
