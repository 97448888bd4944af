"""Stands before a server and breaks the first answers to every question: 503, a body cut short, a reset, silence.

flaky_proxy.py SERVER SECONDS    SERVER is HOST:PORT; prints its own port; at the end of its input, what it did, as JSON
"""

import collections
import http.client
import http.server
import json
import socket
import struct
import sys
import threading
import time

SERVER, SECONDS = sys.argv[1], float(sys.argv[2])
FAULTS = ["503", "cut", "reset", "silence"]
done = collections.Counter()
asked = collections.Counter()
lock = threading.Lock()


def next_fault(question):
    """The n-th time that a question is asked, the n-th fault; then none."""
    with lock:
        number = asked[question]
        asked[question] += 1
        fault = FAULTS[number] if number < len(FAULTS) else "answered"
        done[fault] += 1
    return fault


class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.close_connection = True
        fault = next_fault((self.path, self.headers.get("Range")))
        if fault == "silence":
            time.sleep(SECONDS)
        elif fault == "reset":
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
        elif fault == "503":
            self.answer(503, [], b"<Error><Code>SlowDown</Code></Error>")
        else:
            upstream = http.client.HTTPConnection(SERVER, timeout=60)
            upstream.putrequest("GET", self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders()
            answer = upstream.getresponse()
            body = answer.read()
            self.answer(answer.status, answer.getheaders(), body, len(body) // 2 if fault == "cut" else len(body))

    def answer(self, status, headers, body, shown=None):
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body[:shown])

    def log_message(self, *_):
        pass


class Quiet(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        pass  # a client that hung up


server = Quiet(("127.0.0.1", 0), Proxy)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
print(json.dumps(done), flush=True)
