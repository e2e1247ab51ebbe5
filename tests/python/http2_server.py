"""A server of HTTP/2 without TLS, for clients that are configured to expect it."""

from __future__ import annotations

import socket
import threading
from types import TracebackType

import h2.config
import h2.connection
import h2.events

BODY = b"over HTTP/2"


class Http2Server:
    """Answers every request, until `close`."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Http2Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        protocol = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        protocol.initiate_connection()
        with connection:
            connection.sendall(protocol.data_to_send())
            while data := connection.recv(65_536):
                for event in protocol.receive_data(data):
                    if isinstance(event, h2.events.RequestReceived):
                        fields = [(":status", "200"), ("content-length", str(len(BODY)))]
                        protocol.send_headers(event.stream_id, fields)
                        protocol.send_data(event.stream_id, BODY, end_stream=True)
                connection.sendall(protocol.data_to_send())
