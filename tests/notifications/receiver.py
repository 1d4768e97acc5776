"""A real HTTP server that answers as a test configures it, and rules for it."""

import json
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from django.utils import timezone

from apps.notifications.models import Delivery, Rule
from apps.operations import outbox
from trainops.notification_settings import private_networks

EVERYWHERE = private_networks({"TRAINOPS_WEBHOOK_PRIVATE_ADDRESSES": "1"})


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        receiver = self.server.receiver
        body = self.rfile.read(int(self.headers["Content-Length"]))
        receiver.received.append((self.path, dict(self.headers), body))
        if self.path == "/drip":
            self.drip(receiver)
            return
        if self.path == "/slow":
            receiver.may_answer.wait(30)
        status = receiver.answers.get(self.path, 204)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(10**12 if self.path == "/huge" else 0))
        self.end_headers()

    def drip(self, receiver):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        try:
            while not receiver.may_answer.wait(0.02):
                self.wfile.write(b"x")
        except OSError:
            pass  # the client has closed the connection

    def log_message(self, *_):
        pass


class Receiver:
    """The receiving server. `/slow` waits for the test; `/drip` sends a header byte by byte."""

    def __init__(self):
        self.received, self.answers, self.may_answer = [], {}, threading.Event()
        self.may_answer.set()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.receiver = self
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, path):
        return f"http://localhost:{self.server.server_port}{path}"

    @property
    def bodies(self):
        return [json.loads(body) for _, _, body in self.received]

    def close(self):
        self.may_answer.set()
        self.server.shutdown()
        self.server.server_close()


def made(target, name="hook", **fields):
    rule = Rule(name=name, target=target, **fields)
    rule.full_clean()
    rule.save()
    return rule


def ends(operation, state, **fields):
    assert operation.row.move(state, actor="test", note="why", **fields)
    outbox.deliver()
    return operation


def make_due():
    Delivery.objects.update(next_at=timezone.now() - timedelta(seconds=1))
