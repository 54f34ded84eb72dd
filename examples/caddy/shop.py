"""A shop that pays and ships orders, and knows nothing of locks.

It takes any free port, prints it, and ends when its standard input does.
"""

import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORK = 0.5  # seconds of work that must not run twice at once, such as a call to a payment provider


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        began = time.monotonic()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        _, order, action = self.path.strip("/").split("/")
        time.sleep(WORK)
        body = f"order {order} is {'paid' if action == 'pay' else 'shipped'}\n".encode()
        self.send_response(200)
        self.send_header("Server-Timing", f"handler;dur={round((time.monotonic() - began) * 1000)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def end_with_parent():
    sys.stdin.read()
    os._exit(0)


signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the program, which lets requests finish
threading.Thread(target=end_with_parent, daemon=True).start()
server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
print(server.server_address[1], flush=True)
server.serve_forever()
