"""Limits for Flask.

    from tidegate.flask import Tidegate

    tg = Tidegate(app, store="redis://127.0.0.1:6379/0", default="100/minute")

    @app.get("/login")
    @tg.limit("5/minute")
    def login(): ...

Functions given as options get the request. `user()` is Flask-Login's `current_user` where that is in use, else
`g.user`; `claim()` reads the verified claims from `g.claims`. Views are asked for right before they run, after all
`before_request` functions. Views with a limit of their own are not asked for the default.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import flask
from flask import Blueprint, Flask
from flask.views import View

from ._environ import EnvironFace
from ._layers import Within
from ._tidegate import Limiter
from .errors import ConfigError
from .http import (
    Answer,
    Guard,
    Ticket,
    admit,
    admit_simply,
    claim,
    client_ip,
    header,
    refund,
    run,
    settle,
    user,
)

__all__ = ["Tidegate", "claim", "client_ip", "header", "user"]

# Where a request carries its ticket, and an application its Tidegate.
NAME = "tidegate"
# Where a view carries its limits: a list of (Tidegate, Guard); None instead of a Guard is exempt.
MARK = "__tidegate__"


class _Face(EnvironFace):
    """How a request of Flask is read."""

    def environ(self, request: flask.Request) -> Mapping[str, Any]:
        return request.environ

    def user(self, request: flask.Request) -> object:
        login = sys.modules.get("flask_login")
        if login is not None and hasattr(flask.current_app, "login_manager"):
            current: object = login.current_user
            return current
        return flask.g.get("user")

    def claims(self, request: flask.Request) -> Mapping[str, Any] | None:
        claims: Mapping[str, Any] | None = flask.g.get("claims")
        return claims


FACE = _Face()


class Tidegate(Within[Limiter, Flask]):
    """Limits of Flask applications.

    default: the policy of every view without a limit of its own.
    key, cost, skip, on_denied, headers, refund_when, settle, methods: what limits have that say nothing else.

    The limiter is `limiter`, or one made of `store` and the options of a limiter. `limit` decorates views, async views,
    class views, their methods, and blueprints, whose limit is one for all of their views.
    """

    _kind = Limiter
    _face = FACE

    def init_app(self, app: Flask) -> None:
        """Limits an application from now on."""
        if not isinstance(app, Flask):
            raise ConfigError(f"Tidegate limits a Flask application, not {app!r}")
        if NAME in app.extensions:
            raise ConfigError("this application has a Tidegate already")
        app.extensions[NAME] = self
        self._apps.append(app)
        # Not before_request: those who come after would not have told yet who the user is.
        app.dispatch_request = self._asking(app, app.dispatch_request)  # type: ignore[method-assign]
        app.after_request(self._after)
        app.teardown_request(_teardown)

    def _check_order(self, view: Any, decorator: str) -> None:
        if not callable(view) and not isinstance(view, Blueprint):
            raise ConfigError(f"@tg.{decorator} is for views, class views and blueprints, not for {view!r}")
        if any(view is known for app in self._apps for known in app.view_functions.values()):
            raise ConfigError(
                f"@tg.{decorator} stands above the route of {_name(view)}, which is registered without it: "
                "put it below @app.get(…)"
            )

    def _name(self, view: Any) -> str:
        return _name(view)

    def _marked(self, view: Any, guard: Guard | None) -> Any:
        marks = [(self, guard)] if guard is None else [(self, guard), *getattr(view, MARK, ())]
        setattr(view, MARK, marks)
        if isinstance(view, Blueprint):
            view.before_request(self._check_attached(view))
            return view
        if inspect.isclass(view):
            if issubclass(view, View):
                view.dispatch_request = self._checking(view.dispatch_request)  # type: ignore[method-assign]
            return view
        return self._checking(view)

    def _checking(self, view: Any) -> Any:
        """The view, which finds out whether anybody was asked. Limits nobody enforces are worse than none."""
        check = self._check_attached(view)
        if inspect.iscoroutinefunction(view):

            @functools.wraps(view)
            async def called(*args: Any, **kwargs: Any) -> Any:
                check()
                return await view(*args, **kwargs)

            return called

        @functools.wraps(view)
        def limited(*args: Any, **kwargs: Any) -> Any:
            check()
            return view(*args, **kwargs)

        return limited

    def _check_attached(self, view: Any) -> Callable[[], None]:
        def check() -> None:
            try:
                attached = flask.current_app.extensions.get(NAME)
            except RuntimeError:
                return  # without an application it is a function that somebody calls, a test say
            if attached is not self and flask.has_request_context():
                raise ConfigError(
                    f"{_name(view)} has a limit of a Tidegate that is not attached to the application that serves it: "
                    "give it the application, Tidegate(app, …) or tg.init_app(app)"
                )

        return check

    def _asking(self, app: Flask, dispatch: Callable[..., Any]) -> Callable[..., Any]:
        known, limiter = self._known, self.limiter

        @functools.wraps(dispatch)
        def asking(*args: Any) -> Any:
            request: flask.Request = flask.request._get_current_object()  # type: ignore[attr-defined]
            endpoint, method = request.endpoint, request.method
            if endpoint is None or request.routing_exception is not None:
                return dispatch(*args)
            try:
                guards = known[id(app), endpoint, method]
            except KeyError:
                guards = self._guards(app, endpoint, request)
            if not guards:
                return dispatch(*args)
            guard = guards[0]
            if len(guards) == 1 and guard.simple and guard.methods is None:
                ticket: Ticket | None = admit_simply(guard, request, limiter)
            else:
                ticket = run(admit(guards, request, method), limiter)
            if ticket is not None:
                request.environ[NAME] = ticket
                if ticket.denied:
                    return _refusal(app, request, ticket)
            return dispatch(*args)

        return asking

    def _guards(self, app: Flask, endpoint: str, request: flask.Request) -> tuple[Guard, ...]:
        view, method = app.view_functions[endpoint], request.method
        marks = list(getattr(view, MARK, ()))
        if (view_class := getattr(view, "view_class", None)) is not None:
            marks += getattr(view_class, MARK, ())
            marks += getattr(getattr(view_class, method.lower(), None), MARK, ())
        exempt = any(guard is None for _, guard in marks)
        for name in request.blueprints:
            shared = getattr(app.blueprints[name], MARK, ())
            # A blueprint that is exempt may still have views with a limit.
            exempt = exempt or (not marks and any(guard is None for _, guard in shared))
            marks += shared
        automatic = method == "OPTIONS" and getattr(request.url_rule, "provide_automatic_options", False)
        if exempt or automatic:
            guards: tuple[Guard, ...] = ()
        else:
            guards = tuple(guard for owner, guard in marks if owner is self and guard is not None) or self._default
        # A client may make up methods, a server has few.
        if len(self._known) < 100_000:
            self._known[id(app), endpoint, method] = guards
        return guards

    def _after(self, response: flask.Response) -> flask.Response:
        request: flask.Request = flask.request._get_current_object()  # type: ignore[attr-defined]
        ticket: Ticket | None = request.environ.get(NAME)
        if ticket is None:
            return response
        if ticket.refunds:
            run(refund(ticket, request, response), self.limiter)
        # The list itself: the names and values are known to be legal, and every one is looked at three times otherwise.
        response.headers._list.extend(ticket.guard.headers.text(*ticket.decisions))
        if ticket.holds or ticket.settles:
            del request.environ[NAME]

            def end() -> None:
                ticket.release()
                if ticket.settles:
                    run(settle(ticket, request, response), self.limiter)

            # What is no stream is done, and who has it all may come again. A stream ends with its last byte, or its
            # reader.
            if response.is_streamed:
                response.call_on_close(end)
            else:
                end()
        return response


def _name(view: Any) -> str:
    if isinstance(view, Blueprint):
        return f"blueprint {view.name}"
    name = getattr(view, "__qualname__", type(view).__name__)
    # All views that classes make have the same long name.
    return f"{getattr(view, '__module__', '')}.{view.__name__ if name.endswith('as_view.<locals>.view') else name}"


def _refusal(app: Flask, request: flask.Request, ticket: Ticket) -> Any:
    """What the view would have returned; `on_denied` may return whatever a view may."""
    if ticket.guard.on_denied is not None:
        returned = app.ensure_sync(ticket.guard.on_denied)(request, ticket.decision)
        if returned is not None:
            return returned
    answer = Answer(ticket)
    return app.response_class(answer.body, answer.status, answer.fields)


def _teardown(_: BaseException | None) -> None:
    """For a request that nobody answered."""
    ticket: Ticket | None = flask.request.environ.get(NAME)
    if ticket is not None:
        ticket.release()
