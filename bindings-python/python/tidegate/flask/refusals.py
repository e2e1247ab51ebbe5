"""The exceptions by which a Flask application learns of a refusal, and the header fields of its responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flask
from flask import Flask
from werkzeug.exceptions import BadRequest, HTTPException, ServiceUnavailable, TooManyRequests

from .._tidegate import Decision, status
from ..errors import KeyInvalid, RateLimited, StoreError
from ..web.admission import Admission
from ..web.refusal import Refusal

# The key under which an environ carries the header fields that its response is to announce.
FIELDS = "tidegate.fields"


class Denied(RateLimited, TooManyRequests):  # type: ignore[misc]
    """A request was denied: for `errorhandler(429)` and for `errorhandler(RateLimited)`.

    As of every exception of Werkzeug, `code` is the status and `description` is for the client.
    """

    def __init__(self, decision: Decision, response: flask.Response) -> None:
        RateLimited.__init__(self, decision)
        wait = decision.retry_after
        again = "" if wait is None else f", try again in {max(wait, 0.001):.3f} s"
        _as_http(self, 429, f"{decision.policy}: too many requests{again}", response)

    __str__ = HTTPException.__str__


class Unavailable(RateLimited, ServiceUnavailable):  # type: ignore[misc]
    """A request was denied because the store is missing: for `errorhandler(503)` and `errorhandler(RateLimited)`."""

    def __init__(self, decision: Decision, response: flask.Response) -> None:
        RateLimited.__init__(self, decision)
        _as_http(self, 503, ServiceUnavailable.description, response)

    __str__ = HTTPException.__str__


class StoreMissing(StoreError, ServiceUnavailable):  # type: ignore[misc]
    """The store did not answer: for `errorhandler(503)` and `errorhandler(StoreError)`. Its cause has its code."""

    def __init__(self, message: str, response: flask.Response) -> None:
        StoreError.__init__(self, message)
        _as_http(self, 503, ServiceUnavailable.description, response)

    __str__ = HTTPException.__str__


class KeyRefused(KeyInvalid, BadRequest):  # type: ignore[misc]
    """The client of a request made its key unusable: for `errorhandler(400)` and `errorhandler(KeyInvalid)`."""

    def __init__(self, message: str, response: flask.Response) -> None:
        KeyInvalid.__init__(self, message)
        _as_http(self, 400, BadRequest.description, response)

    __str__ = HTTPException.__str__


def _as_http(error: Any, status: int, description: str | None, response: flask.Response) -> None:
    error.code, error.description, error.response = status, description, response


def refusal_response(app: Flask, admission: Admission) -> flask.Response:
    """The response to a denied request that no error handler answers."""
    refusal = Refusal(admission)
    return app.response_class(refusal.body, refusal.status, refusal.fields)


def denied(app: Flask, admission: Admission) -> HTTPException:
    """The exception for a request that was denied, with the response that it gets when no error handler answers it."""
    response = refusal_response(app, admission)
    kind = Denied if response.status_code == 429 else Unavailable
    return kind(admission.decision, response)


def answers_errors(app: Flask) -> bool:
    """Whether anything of an application may answer an exception. Where nothing does, a response costs half as much."""
    own, kind = vars(app), type(app)
    return (
        any(handlers for codes in app.error_handler_spec.values() for handlers in codes.values())
        or any(
            name in own or getattr(kind, name) is not getattr(Flask, name)
            for name in ("handle_user_exception", "handle_http_exception")
        )
        or bool(app.config["TRAP_HTTP_EXCEPTIONS"])
    )


def store_missing(app: Flask, error: StoreError) -> HTTPException:
    """The exception for a request that could not be checked."""
    refusal = Refusal.without_store(error)
    return StoreMissing(error.message, app.response_class(refusal.body, refusal.status, refusal.fields))


def key_refused(app: Flask, error: KeyInvalid) -> HTTPException:
    """The exception for a request whose key no limiter takes."""
    refusal = Refusal(error)
    return KeyRefused(error.message, app.response_class(refusal.body, refusal.status, refusal.fields))


def answered(app: Flask, given: Any, decision: Decision) -> Any:
    """What `on_denied` has returned, as the answer to a refused request.

    Its status is that of the refusal, if it gives none.
    """
    if isinstance(given, tuple) and len(given) > 1 and isinstance(given[1], (int, str)):
        return given
    response = app.make_response(given)
    if response.status_code == 200:
        response.status_code = status(decision)
    return response


class Fields(list[tuple[str, str]]):
    """The header fields that a response is to announce."""

    # Whether the response is that of an error handler or of `on_denied`, whose own fields come first.
    after_others = False


def announcing(wsgi_app: Callable[..., Any]) -> Callable[..., Any]:
    """The application; what `announce` gives for a request is put behind the headers of the response."""

    def announcing_app(environ: Any, start_response: Callable[..., Any]) -> Any:
        fields = Fields()
        environ[FIELDS] = fields

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            announced: list[tuple[str, str]] = fields
            if fields.after_others:
                others = {name.lower() for name, _ in headers}
                announced = [field for field in fields if field[0].lower() not in others]
            return start_response(status, [*headers, *announced], *error)

        return wsgi_app(environ, start)

    return announcing_app


def announce(environ: Any, fields: list[tuple[str, str]], denied: bool = False) -> None:
    """Has the response announce these fields, and no others that were given before."""
    announced: Fields | None = environ.get(FIELDS)
    # A request that is dispatched without a server has none: nothing is sent.
    if announced is not None:
        announced[:] = fields
        announced.after_others = denied
