"""A web server for alerts: `status` is what it answers, `bodies` what it got; it can be stopped and started again."""

import contextlib
import http.server
import json
import socket
import threading
import time


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.status)
        if 300 <= self.server.status < 400:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_arguments):
        pass


class _Server(http.server.ThreadingHTTPServer):
    allow_reuse_address = True


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def hook_server(port=0, bodies=None):
    """Gives the server, with its address."""
    with _Server(("127.0.0.1", port), _Handler) as httpd:
        httpd.status, httpd.bodies = 200, [] if bodies is None else bodies
        httpd.address = f"http://127.0.0.1:{httpd.server_port}/hook?token=secret"
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        try:
            yield httpd
        finally:
            httpd.shutdown()


class TricklingServer:
    """Takes one alert and answers with a head that never ends, byte by byte; `sent` bytes were taken by the client."""

    most = 3000  # a client that waits for all of them would be answered

    def __init__(self):
        self.sent = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}/hook"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        connection, _ = self._listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Wait: ")
            while self.sent < self.most:
                connection.sendall(b"a")
                self.sent += 1
                time.sleep(0.02)
            connection.sendall(b"\r\nContent-Length: 0\r\n\r\n")

    def close(self):
        """Wait until the client has gone."""
        self._thread.join()
        self._listener.close()
