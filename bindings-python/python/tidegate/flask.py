"""Limits for Flask.

    from tidegate.flask import Tidegate

    tg = Tidegate(app, store="redis://127.0.0.1:6379/0", default="100/minute")

    @app.get("/login")
    @tg.limit("5/minute")
    def login(): ...

Functions given as options get the request. `user()` is Flask-Login's `current_user` where that is in use, else
`g.user`; `claim()` reads the verified claims from `g.claims`. A request is checked right before its view runs, after
all `before_request` functions. The default does not apply to views with a limit of their own.
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

from ._shown import shown
from ._tidegate import Limiter
from .errors import ConfigError
from .web.admission import Admission, admit, admit_in_one_call, refund, settle
from .web.bound_limit import BoundLimit
from .web.environ import EnvironAdapter
from .web.keys import claim, client_ip, header, user
from .web.layers import RouteLimits
from .web.refusal import Refusal
from .web.steps import run_steps

__all__ = ["Tidegate", "claim", "client_ip", "header", "user"]

# The key under which an environ carries its admission, and an application its Tidegate.
NAME = "tidegate"
# The key under which an environ carries the header fields that its response is to announce.
FIELDS = "tidegate.fields"
# The attribute in which a view carries its limits: a list of (Tidegate, BoundLimit); None for a limit exempts the view.
LIMITS = "__tidegate__"
# How many routes and methods are remembered: a client may make up methods, a server has few.
MAX_ROUTES = 10_000
# The Tidegate that has checked the request whose view runs.
_CHECKED_BY: ContextVar[object] = ContextVar("tidegate.flask", default=None)

_current_request = flask.request._get_current_object  # type: ignore[attr-defined]


class _FlaskAdapter(EnvironAdapter):
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


class Tidegate(RouteLimits[Limiter, Flask]):
    """Limits of Flask applications.

    default: the policy of every view without a limit of its own.
    limiter: the limiter; without one it is made from `store` and the options of a limiter (policies, prefix, timeout,
    on_store_error, deny_cache, clock).
    key, cost, skip, on_denied, headers, refund_when, settle, methods: the defaults of the options of all limits.

    `limit` decorates views, async views, class views, their methods, and blueprints: all views of a blueprint share its
    limit.
    """

    _limiter_class = Limiter
    _adapter = _FlaskAdapter()

    def _configure(self, *args: Any) -> None:
        super()._configure(*args)
        # The applications with response hooks, which only some limits need.
        self._hooked_apps: list[Flask] = []
        self._hooks_lock = threading.Lock()

    def init_app(self, app: Flask) -> None:
        """Limits an application from now on."""
        if not isinstance(app, Flask):
            raise ConfigError(f"Tidegate limits a Flask application, not {shown(app)}")
        if NAME in app.extensions:
            raise ConfigError("this application has a Tidegate already")
        app.extensions[NAME] = self
        self._apps.append(app)
        # Not before_request: functions that are registered later may still have to authenticate the user.
        app.dispatch_request = self._checked_dispatch(app, app.dispatch_request)  # type: ignore[method-assign]
        # Not after_request: with a changed response, Flask copies and inspects every header once more.
        app.wsgi_app = _announcing(app.wsgi_app)  # type: ignore[method-assign]

    def _check_decorator_order(self, view: Any, decorator: str) -> None:
        if not callable(view) and not isinstance(view, Blueprint):
            raise ConfigError(f"@tg.{decorator} is for views, class views and blueprints, not for {shown(view)}")
        if any(view is known for app in self._apps for known in app.view_functions.values()):
            raise ConfigError(
                f"@tg.{decorator} stands above the route of {_name_of(view)}, which is registered without it: "
                "put it below @app.get(…)"
            )

    def _scope_of(self, view: Any) -> str:
        return _name_of(view)

    def _with_limit(self, view: Any, bound: BoundLimit | None) -> Any:
        limits = [(self, bound)] if bound is None else [(self, bound), *getattr(view, LIMITS, ())]
        setattr(view, LIMITS, limits)
        if isinstance(view, Blueprint):
            view.before_request(self._enforcement_check(view))
            return view
        if inspect.isclass(view):
            if issubclass(view, View):
                view.dispatch_request = self._enforced(view.dispatch_request)  # type: ignore[method-assign]
            return view
        return self._enforced(view)

    def _enforced(self, view: Any) -> Any:
        """The view; it raises when it runs and no Tidegate has checked its limits."""
        check = self._enforcement_check(view)
        if inspect.iscoroutinefunction(view):

            @functools.wraps(view)
            async def enforced_async(*args: Any, **kwargs: Any) -> Any:
                check()
                return await view(*args, **kwargs)

            return enforced_async

        @functools.wraps(view)
        def enforced(*args: Any, **kwargs: Any) -> Any:
            check()
            return view(*args, **kwargs)

        return enforced

    def _enforcement_check(self, view: Any) -> Callable[[], None]:
        def check() -> None:
            if _CHECKED_BY.get() is self:
                return
            try:
                attached = flask.current_app.extensions.get(NAME)
            except RuntimeError:
                return  # without an application, a test calls the view as a function
            if attached is not self and flask.has_request_context():
                raise ConfigError(
                    f"{_name_of(view)} has a limit of a Tidegate that is not attached to the application that serves "
                    "it: give it the application, Tidegate(app, …) or tg.init_app(app)"
                )

        return check

    def _checked_dispatch(self, app: Flask, dispatch: Callable[..., Any]) -> Callable[..., Any]:
        limiter = self.limiter
        limits_by_route: dict[tuple[str, str], tuple[BoundLimit, ...]] = self._limits_by_route.setdefault(id(app), {})

        @functools.wraps(dispatch)
        def checked(*args: Any) -> Any:
            request: flask.Request = _current_request()
            rule = request.url_rule
            if rule is None:
                return dispatch(*args)
            try:
                limits = limits_by_route[rule.endpoint, request.method]
            except KeyError:
                limits = self._find_limits(app, rule.endpoint, request)
            if not limits:
                return dispatch(*args)
            bound = limits[0]
            answer: list[tuple[str, str]] | Admission | None
            if bound.prepared is not None and len(limits) == 1:
                answer = admit_in_one_call(bound, bound.prepared, request, limiter)
            else:
                answer = run_steps(admit(limits, request, request.method), limiter)
            if answer is not None:
                environ = request.environ
                if isinstance(answer, Admission):
                    environ[NAME] = admission = answer
                    answer = admission.bound.headers.text(*admission.decisions)
                    if admission.denied:
                        _announce(environ, answer)
                        return _refuse(app, request, admission)
                _announce(environ, answer)
            token = _CHECKED_BY.set(self)
            try:
                return dispatch(*args)
            finally:
                _CHECKED_BY.reset(token)

        return checked

    def _hook_responses(self, app: Flask) -> None:
        """Has `_after_request` and `_teardown_request` called from now on: they cost every request a microsecond."""
        with self._hooks_lock:
            if app in self._hooked_apps:
                return
            self._hooked_apps.append(app)
            # The first in a list runs last. The lists are replaced, since a request may be iterating over them.
            after, teardown = app.after_request_funcs, app.teardown_request_funcs
            after[None] = [self._after_request, *after.get(None, ())]
            teardown[None] = [_teardown_request, *teardown.get(None, ())]

    def _find_limits(self, app: Flask, endpoint: str, request: flask.Request) -> tuple[BoundLimit, ...]:
        view, method = app.view_functions[endpoint], request.method
        found = list(getattr(view, LIMITS, ()))
        if (view_class := getattr(view, "view_class", None)) is not None:
            found += getattr(view_class, LIMITS, ())
            found += getattr(getattr(view_class, method.lower(), None), LIMITS, ())
        exempt = any(bound is None for _, bound in found)
        for name in request.blueprints:
            shared = getattr(app.blueprints[name], LIMITS, ())
            # A view of an exempt blueprint may still have a limit of its own.
            exempt = exempt or (not found and any(bound is None for _, bound in shared))
            found += shared
        automatic = method == "OPTIONS" and getattr(request.url_rule, "provide_automatic_options", False)
        if exempt or automatic:
            limits: tuple[BoundLimit, ...] = ()
        else:
            limits = tuple(bound for owner, bound in found if owner is self and bound is not None) or self._default
        if any(bound.has_follow_up for bound in limits):
            self._hook_responses(app)
        limits_by_route = self._limits_by_route[id(app)]
        if len(limits_by_route) < MAX_ROUTES:
            limits_by_route[endpoint, method] = limits
        return limits

    def _after_request(self, response: flask.Response) -> flask.Response:
        request: flask.Request = _current_request()
        admission: Admission | None = request.environ.get(NAME)
        if admission is None:
            return response
        if admission.refunds:
            run_steps(refund(admission, request, response), self.limiter)
        if admission.holds or admission.settles:
            del request.environ[NAME]

            def end() -> None:
                admission.release()
                if admission.settles:
                    run_steps(settle(admission, request, response), self.limiter)

            # A stream ends with its last byte, or when its reader leaves. Any other response is complete: it ends
            # before the client has it and may send the next request.
            if response.is_streamed:
                response.call_on_close(end)
            else:
                end()
        return response


def _announcing(wsgi_app: Callable[..., Any]) -> Callable[..., Any]:
    """The application; what `_announce` gives for a request is put behind the headers of the response."""

    def announcing(environ: Any, start_response: Callable[..., Any]) -> Any:
        fields: list[tuple[str, str]] = []
        environ[FIELDS] = fields

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            return start_response(status, [*headers, *fields], *error)

        return wsgi_app(environ, start)

    return announcing


def _announce(environ: Any, fields: list[tuple[str, str]]) -> None:
    announced: list[tuple[str, str]] | None = environ.get(FIELDS)
    # A request that is dispatched without a server has none: nothing is sent.
    if announced is not None:
        announced.extend(fields)


def _name_of(view: Any) -> str:
    if isinstance(view, Blueprint):
        return f"blueprint {view.name}"
    name = getattr(view, "__qualname__", type(view).__name__)
    # All views that classes make have the same long name.
    return f"{getattr(view, '__module__', '')}.{view.__name__ if name.endswith('as_view.<locals>.view') else name}"


def _refuse(app: Flask, request: flask.Request, admission: Admission) -> Any:
    """What the view would have returned. `on_denied` may return whatever a view may."""
    if admission.bound.on_denied is not None:
        returned = app.ensure_sync(admission.bound.on_denied)(request, admission.decision)
        if returned is not None:
            return returned
    refusal = Refusal(admission)
    return app.response_class(refusal.body, refusal.status, refusal.fields)


def _teardown_request(_: BaseException | None) -> None:
    """Gives back the holds of a request that has no response."""
    admission: Admission | None = flask.request.environ.get(NAME)
    if admission is not None:
        admission.release()
