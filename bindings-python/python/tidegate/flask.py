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
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import flask
from flask import Blueprint, Flask
from flask.views import View

from ._tidegate import Limiter
from .errors import ConfigError
from .web.admission import Ticket, admit, admit_simply, refund, settle
from .web.answer import Answer
from .web.environ import EnvironFace
from .web.guard import Guard
from .web.keys import claim, client_ip, header, user
from .web.layers import Within
from .web.steps import run

__all__ = ["Tidegate", "claim", "client_ip", "header", "user"]

# Where a request carries its ticket, and an application its Tidegate.
NAME = "tidegate"
# Where a request carries the list of what its answer is to tell about limits.
FIELDS = "tidegate.fields"
# Where a view carries its limits: a list of (Tidegate, Guard); None instead of a Guard is exempt.
MARK = "__tidegate__"
# Who was asked for the view that runs.
_ASKED: ContextVar[object] = ContextVar("tidegate.flask", default=None)

_current = flask.request._get_current_object  # type: ignore[attr-defined]


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

    def _begin(self, *args: Any, **shared: Any) -> None:
        super()._begin(*args, **shared)
        # The applications whose answers are listened to, since a limit of theirs has something to do then.
        self._listens: list[Flask] = []
        self._lock = threading.Lock()

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
        # Not after_request: a response copies its headers once more, and looks at every one, when it is sent.
        app.wsgi_app = _announcing(app.wsgi_app)  # type: ignore[method-assign]

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
            if _ASKED.get() is self:
                return
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
        limiter = self.limiter
        known: dict[tuple[str, str], tuple[Guard, ...]] = self._known.setdefault(id(app), {})

        @functools.wraps(dispatch)
        def asking(*args: Any) -> Any:
            request: flask.Request = _current()
            rule = request.url_rule
            if rule is None:
                return dispatch(*args)
            try:
                guards = known[rule.endpoint, request.method]
            except KeyError:
                guards = self._guards(app, rule.endpoint, request)
            if not guards:
                return dispatch(*args)
            guard = guards[0]
            told: list[tuple[str, str]] | Ticket | None
            if guard.desk is not None and len(guards) == 1:
                told = admit_simply(guard, guard.desk, request, limiter)
            else:
                told = run(admit(guards, request, request.method), limiter)
            if told is not None:
                environ = request.environ
                if isinstance(told, Ticket):
                    environ[NAME] = ticket = told
                    told = ticket.guard.headers.text(*ticket.decisions)
                    if ticket.denied:
                        _announce(environ, told)
                        return _refusal(app, request, ticket)
                _announce(environ, told)
            token = _ASKED.set(self)
            try:
                return dispatch(*args)
            finally:
                _ASKED.reset(token)

        return asking

    def _listen(self, app: Flask) -> None:
        """Hears from now on of an application's answers."""
        with self._lock:
            if app in self._listens:
                return
            self._listens.append(app)
            # First in the lists, so last of all; and the lists anew, since somebody may be going through them.
            after, over = app.after_request_funcs, app.teardown_request_funcs
            after[None] = [self._after, *after.get(None, ())]
            over[None] = [_teardown, *over.get(None, ())]

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
        if any(guard.later for guard in guards):
            self._listen(app)
        known = self._known[id(app)]
        # A client may make up methods, a server has few.
        if len(known) < 100_000:
            known[endpoint, method] = guards
        return guards

    def _after(self, response: flask.Response) -> flask.Response:
        request: flask.Request = _current()
        ticket: Ticket | None = request.environ.get(NAME)
        if ticket is None:
            return response
        if ticket.refunds:
            run(refund(ticket, request, response), self.limiter)
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


def _announcing(inner: Callable[..., Any]) -> Callable[..., Any]:
    """Puts what is announced behind the headers of an answer."""

    def announcing(environ: Any, start_response: Callable[..., Any]) -> Any:
        told: list[tuple[str, str]] = []
        environ[FIELDS] = told

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            return start_response(status, [*headers, *told], *error)

        return inner(environ, start)

    return announcing


def _announce(environ: Any, fields: list[tuple[str, str]]) -> None:
    told: list[tuple[str, str]] | None = environ.get(FIELDS)
    # There is none where somebody dispatches without a server: nothing is sent then.
    if told is not None:
        told.extend(fields)


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
