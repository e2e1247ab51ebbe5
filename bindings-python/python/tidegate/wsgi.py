"""Limits for any WSGI application.

    from tidegate.wsgi import TidegateMiddleware

    app = TidegateMiddleware(app, policy="100/minute", store="redis://127.0.0.1:6379/0")

Functions that you give as options get the environ. `user()` reads `REMOTE_USER`, and `claim()` reads the verified
claims in `environ["tidegate.claims"]`. Your application finds the Decision in `environ["tidegate.decision"]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any, TypeAlias

from ._tidegate import Limiter, status
from .errors import StoreError
from .web.admission import DECISION, Admission, ResponseStart, admit_on_thread, end_work, refund
from .web.keys import EnvironAdapter, UnusableKey, claim, client_ip, fixed, header, user
from .web.layers import AppLimits
from .web.refusal import Refusal
from .web.steps import run_steps

__all__ = ["TidegateMiddleware", "claim", "client_ip", "fixed", "header", "user"]

Environ: TypeAlias = dict[str, Any]
App: TypeAlias = Callable[..., Iterable[bytes]]


class _WsgiAdapter(EnvironAdapter):
    def environ(self, request: Environ) -> Environ:
        return request

    def user(self, request: Environ) -> object:
        return request.get("REMOTE_USER") or None

    def claims(self, request: Environ) -> Any:
        return request.get("tidegate.claims")


class TidegateMiddleware(AppLimits[Limiter, App]):
    """Checks each request before the application is called. Denied requests do not reach it.

    limiter: the limiter. Without it one is made from `store` and the options of a limiter (policies, prefix, timeout,
    on_store_error, deny_cache, clock).
    key, cost, skip, on_denied, headers, refund_when, settle, hold_until, meta, methods, per_method: the options of the
    limit.
    enabled: False turns the middleware off. Without it, the environment variable TIDEGATE_ENABLED decides.

    The units of a "concurrency" limit are held until the last byte of the response, or until the server closes it.
    """

    _limiter_class = Limiter
    _awaits = False
    _adapter = _WsgiAdapter()

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if not self.enabled:
            return self.app(environ, start_response)
        self._refresh()
        try:
            admission = admit_on_thread(self._application, environ, environ["REQUEST_METHOD"], self.limiter)
        except (StoreError, UnusableKey) as error:
            return _respond(Refusal(error), environ, start_response)
        if admission is None:
            return self.app(environ, start_response)
        environ[DECISION] = admission.decision
        fields = admission.fields

        def start_with_fields(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            return start_response(status, [*headers, *fields], *error)

        if not admission.decision:
            return _refuse(admission, environ, start_with_fields)
        if not (admission.holds or admission.refunds or admission.settles):
            return self.app(environ, start_with_fields)
        admissions: tuple[Admission] = (admission,)
        started: list[Any] = [None]

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            started[0] = ResponseStart(int(status.split(" ", 1)[0]), headers)
            run_steps(refund(admissions, environ, started[0]), self.limiter)
            return start_with_fields(status, headers, *error)

        def end() -> None:
            run_steps(end_work(admissions, environ, started[0]), self.limiter)

        try:
            body = self.app(environ, start)
        except BaseException:
            end()
            raise
        if not (admission.holds or admission.settles):
            return body
        if isinstance(body, (list, tuple)):
            # The work is done. It ends before the client has the response and may send the next request.
            end()
            return body
        return _Body(body, end)


def _refuse(admission: Admission, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Responds with the WSGI application that `on_denied` returns, or with a Refusal."""
    on_denied = admission.bound.on_denied
    given = None if on_denied is None else on_denied(environ, admission.decision)
    if given is None:
        return _respond(Refusal(admission), environ, start_response)
    body: Iterable[bytes] = given(environ, _as_refusal(start_response, status(admission.decision)))
    return body


def _respond(refusal: Refusal, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response(f"{refusal.status} {refusal.phrase}", refusal.fields)
    return [b"" if environ["REQUEST_METHOD"] == "HEAD" else refusal.body]


def _as_refusal(start_response: Callable[..., Any], status: int) -> Callable[..., Any]:
    """Returns a `start_response` for the answer to a refused request. It replaces 200 by the status of the refusal."""

    refusal = f"{status} {HTTPStatus(status).phrase}"

    def start(line: str, headers: list[tuple[str, str]], *error: Any) -> Any:
        return start_response(refusal if line.split(" ", 1)[0] == "200" else line, headers, *error)

    return start


class _Body:
    """A body that calls `end` once: after its last part, or when it is closed."""

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
