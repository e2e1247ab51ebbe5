"""Limits for any WSGI application.

    from tidegate.wsgi import TidegateMiddleware

    app = TidegateMiddleware(app, policy="100/minute", store="redis://127.0.0.1:6379/0")

Functions given as options get the environ. `user()` reads `REMOTE_USER`, `claim()` the verified claims in
`environ["tidegate.claims"]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, TypeAlias

from ._tidegate import Limiter
from .web.admission import Ticket, admit, admit_simply, refund, settle
from .web.answer import Answer
from .web.environ import EnvironFace
from .web.keys import claim, client_ip, header, user
from .web.layers import Around
from .web.steps import run

__all__ = ["TidegateMiddleware", "claim", "client_ip", "header", "user"]

Environ: TypeAlias = dict[str, Any]
App: TypeAlias = Callable[..., Iterable[bytes]]

# Where an environ carries its ticket.
NAME = "tidegate"


class Response:
    """What is known of an answer when it begins."""

    def __init__(self, status: str, headers: Iterable[tuple[str, str]]) -> None:
        self.status_code = int(status.split(" ", 1)[0])
        self.headers = {name.lower(): value for name, value in headers}


class _Face(EnvironFace):
    """How an environ is read."""

    def environ(self, request: Environ) -> Environ:
        return request

    def user(self, request: Environ) -> object:
        return request.get("REMOTE_USER") or None

    def claims(self, request: Environ) -> Mapping[str, Any] | None:
        return request.get("tidegate.claims")


FACE = _Face()


class TidegateMiddleware(Around[Limiter, App]):
    """Asks before the application is called; refused requests do not reach it.

    The limiter is `limiter`, or one made of `store` and the options of a limiter. A policy with a "concurrency" limit
    is held until the last byte of the answer, or until the server closes it.
    """

    _kind = Limiter
    _face = FACE

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        guard = self._guards[0]
        if guard.desk is not None:
            told = admit_simply(guard, guard.desk, environ, self.limiter)
            if isinstance(told, Ticket):
                return self._refuse(told, environ, start_response)
            return self.app(environ, _announcing(start_response, told))
        ticket = run(admit(self._guards, environ, environ["REQUEST_METHOD"]), self.limiter)
        if ticket is None:
            return self.app(environ, start_response)
        if ticket.denied:
            return self._refuse(ticket, environ, start_response)
        environ[NAME] = ticket
        announce = _announcing(start_response, ticket.guard.headers.text(*ticket.decisions))
        answered: list[Response] = []

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            if ticket.refunds or ticket.settles:
                answered.append(Response(status, headers))
                run(refund(ticket, environ, answered[-1]), self.limiter)
            return announce(status, headers, *error)

        def end() -> None:
            ticket.release()
            if ticket.settles:
                run(settle(ticket, environ, answered[-1] if answered else None), self.limiter)

        try:
            body = self.app(environ, start)
        except BaseException:
            end()
            raise
        if not (ticket.holds or ticket.settles):
            return body
        if isinstance(body, (list, tuple)):
            # All of it is there; whoever has read it may come again.
            end()
            return body
        return _Body(body, end)

    def _refuse(self, ticket: Ticket, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """`on_denied` may return a WSGI application that answers."""
        fields = ticket.guard.headers.text(*ticket.decisions)
        if ticket.guard.on_denied is not None:
            answer = ticket.guard.on_denied(environ, ticket.decision)
            if answer is not None:
                body: Iterable[bytes] = answer(environ, _announcing(start_response, fields))
                return body
        refusal = Answer(ticket)
        phrase = HTTPStatus(refusal.status).phrase
        start_response(f"{refusal.status} {phrase}", [*refusal.fields, *fields])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else refusal.body]


def _announcing(start_response: Callable[..., Any], fields: list[tuple[str, str]]) -> Callable[..., Any]:
    """Puts these behind the headers of an answer."""

    def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
        return start_response(status, [*headers, *fields], *error)

    return start


class _Body:
    """A body that tells when it was read, or given up."""

    def __init__(self, body: Iterable[bytes], end: Callable[[], None]) -> None:
        self._body = body
        self._parts = iter(body)
        self._end: Callable[[], None] | None = end

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._parts)
        except BaseException:
            self._finish()
            raise

    def _finish(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end()

    def close(self) -> None:
        try:
            if (close := getattr(self._body, "close", None)) is not None:
                close()
        finally:
            self._finish()
