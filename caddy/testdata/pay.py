"""A service that pays orders, one at a time only if a lock in front of it sees to that.

It listens on a free port of the loopback interface and prints it. GET /journal lists the calls.
During a call there is a file for its path in the directory that is the first argument, which two
services share; if there was one already, the call overlaps with another. A call with ?gate=NAME
waits for POST /gate/NAME before it ends. ?header=NAME:VALUE adds a header to its answer, and ?echo the
body of the request. ?kind=TYPE is the Content-Type of a stream.
"""

import base64
import hashlib
import json
import os
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

lock = threading.Lock()
journal = []
gates = {}


def gate(name):
    with lock:
        return gates.setdefault(name, threading.Event())


def mark(path):
    return os.path.join(sys.argv[1], path.replace("/", "_"))


def begin(path):
    try:
        os.close(os.open(mark(path), os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def send_headers(self, query):
        for header in query.get("header", []):
            self.send_header(*header.split(":", 1))

    def answer(self, status, body, kind="text/plain", query={}):
        body = body.encode()
        self.send_response(status)
        self.send_headers(query)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/journal":
            with lock:
                self.answer(200, json.dumps(journal), "application/json")
        elif url.path.startswith("/events/"):
            self.events(url)
        elif url.path.startswith("/socket/"):
            self.socket()
        else:
            self.work(url)

    def do_POST(self):
        url = urlsplit(self.path)
        if url.path.startswith("/gate/"):
            gate(url.path[len("/gate/"):]).set()
            self.answer(200, "open")
        elif url.path.startswith("/events/"):
            self.read_body()
            self.events(url)
        else:
            self.work(url)

    def work(self, url):
        query = parse_qs(url.query)
        body = self.read_body()
        call = {"path": url.path, "overlaps": not begin(url.path)}
        with lock:
            journal.append(call)
            number = len(journal)
        if "gate" in query:
            gate(query["gate"][0]).wait(60)
        time.sleep(float(query.get("ms", ["0"])[0]) / 1000)
        if not call["overlaps"]:
            os.remove(mark(url.path))
        status = int(query.get("status", ["200"])[0])
        if "chunked" in query:
            self.send_response(status)
            self.send_headers(query)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in ("paid by python, ", "number %d\n" % number):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part.encode()))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        else:
            echo = body.decode() if "echo" in query else ""
            self.answer(status, "paid by python, number %d\n" % number + echo, query=query)

    def read_body(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                self.rfile.read(size + 2)
            self.rfile.readline()
        return body

    def events(self, url):
        """Sends one event at once, and another one when the gate opens."""
        query = parse_qs(url.query)
        self.send_response(200)
        self.send_headers(query)
        self.send_header("Content-Type", query.get("kind", ["text/event-stream"])[0])
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"data: first\n\n")
        self.wfile.flush()
        gate(query["gate"][0]).wait(60)
        self.wfile.write(b"data: last\n\n")
        self.close_connection = True

    def socket(self):
        """Echoes the text frames of a WebSocket."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 0xF == 8:
                return
            size = head[1] & 0x7F
            if size == 126:
                size = struct.unpack(">H", self.rfile.read(2))[0]
            mask = self.rfile.read(4)
            text = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            self.wfile.write(bytes([0x81, len(text)]) + text)
            self.wfile.flush()


ThreadingHTTPServer.request_queue_size = 128
server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
