"""A TCP relay between nodes and their broker. It can cut or refuse connections, and add TLS."""

import contextlib
import socket
import ssl
import threading
from types import TracebackType


class Relay:
    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._broker = ("127.0.0.1", port)
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self.is_refusing = False
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Relay":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        self.hang_up()

    def hang_up(self) -> None:
        """Close all connections without an AMQP close."""
        while self._ends:
            end = self._ends.pop()
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            if self.is_refusing:
                client.close()
                return
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            broker = socket.create_connection(self._broker)
        except OSError:
            client.close()
            return
        self._ends += [client, broker]
        threading.Thread(target=pump, args=(broker, client), daemon=True).start()
        pump(client, broker)


def pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)
