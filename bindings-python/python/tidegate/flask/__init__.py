"""Limits for Flask.

    from tidegate.flask import Tidegate

    tg = Tidegate(app, store="redis://127.0.0.1:6379/0", default="100/minute")

    @app.get("/login")
    @tg.limit("5/minute")
    def login(): ...

Functions given as options get the request. A request is checked right before its view runs, after all `before_request`
functions and before the decorators of the view. `user()` is Flask-Login's `current_user` where that is in use, else
`g.user`; `claim()` reads the verified claims from `g.claims`: a `before_request` function leaves them there, or None
for a visitor.

A refusal that `on_denied` does not answer goes to the application's `errorhandler(429)` or `errorhandler(RateLimited)`;
one because of the store to `errorhandler(503)` or `errorhandler(StoreError)`.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import flask
from flask import Blueprint, Flask
from flask.views import View

from .._shown import shown
from .._tidegate import Decision, Limiter
from ..errors import ConfigError, StoreError
from ..web.admission import DECISION, Admission, admit_on_thread, end_work, refund
from ..web.bound_limit import BoundLimit
from ..web.declared_limit import VARIABLE, DeclaredLimit, enabled_layer, enabled_setting
from ..web.keys import UNAUTHENTICATED, EnvironAdapter, UnusableKey, claim, client_ip, fixed, header, user
from ..web.layers import RouteLimits
from ..web.steps import run_steps
from .refusals import (
    announce,
    announcing,
    answered,
    answers_errors,
    denied,
    key_refused,
    refusal_response,
    store_missing,
)
from .views import LIMITS, DecoratedViews, FoundLimits, FunctionPlaces, ViewLimits, check_decorated, name_of

__all__ = ["Tidegate", "claim", "client_ip", "decision", "fixed", "header", "user"]


class FlaskAdapter(EnvironAdapter):
    """Says what a request of Flask is, and who made it."""

    authentication = (
        "set g.user and g.claims in a before_request function (None for a visitor), or use Flask-Login. "
        "The decorators of a view run after its limits, which is too late"
    )

    def environ(self, request: flask.Request) -> Mapping[str, Any]:
        return request.environ

    def user(self, request: flask.Request) -> object:
        login = sys.modules.get("flask_login")
        if login is not None and hasattr(flask.current_app, "login_manager"):
            current: object = login.current_user
            return current
        return flask.g.get("user", UNAUTHENTICATED)

    def claims(self, request: flask.Request) -> Mapping[str, Any] | None:
        claims: Mapping[str, Any] | None = flask.g.get("claims", UNAUTHENTICATED)
        return claims


log = logging.getLogger("tidegate.http")

# The key under which an environ carries its admissions, and an application its Tidegate.
NAME = "tidegate"
# The key under which an environ carries the Decisions of several checks.
ANNOUNCED = "tidegate.announced"
# How many routes and methods are remembered.
MAX_ROUTES = 10_000
# The limits that were checked for the request whose view runs.
_CHECKED: ContextVar[frozenset[DeclaredLimit]] = ContextVar("tidegate.flask", default=frozenset())

_current_request = flask.request._get_current_object  # type: ignore[attr-defined]


def decision() -> Decision | None:
    """The Decision about the current request; None when nothing limits it. That of several policies has `decisions`."""
    if not flask.has_request_context():
        return None
    found: Decision | None = _current_request().environ.get(DECISION)
    return found


class Tidegate(RouteLimits[Limiter, Flask]):
    """Limits of Flask applications.

    default: the policy of every view without a limit of its own, which has a budget for each such view.
    application: one limit for all requests, asked together with those of their views.
    limiter: the limiter; without one it is made from `store` and the options of a limiter (policies, prefix, timeout,
    on_store_error, deny_cache, clock).
    enabled: False does nothing at all. `app.config["TIDEGATE_ENABLED"]` overrides it; without both the environment
    variable TIDEGATE_ENABLED is read.
    skip: exempts requests from all limits; a limit may have a skip of its own beside it.
    key, cost, on_denied, headers, refund_when, settle, hold_until, meta, methods, per_method: the defaults of the
    options of limits.

    `limit` decorates views, async views, class views, their methods, and blueprints: all views of a blueprint share its
    limit. On any other function it counts the calls that requests make. A notation counts for its place: the endpoint
    (`login`, `api.login`), the endpoint and the method of a class view (`login.post`), all of a blueprint (`api.*`), or
    all of the application (`*`). HEAD counts as GET. The OPTIONS responses that Flask makes itself and its static files
    have no limits.
    """

    _limiter_class = Limiter
    _awaits = False
    _adapter = FlaskAdapter()

    def _configure(self, *args: Any) -> None:
        super()._configure(*args)
        # The applications with response hooks, which only some limits need.
        self._hooked_apps: list[Flask] = []
        self._hooks_lock = threading.Lock()
        self._decorated_views = DecoratedViews()
        self._places = FunctionPlaces()
        # The limits of functions that are no views.
        self._limits_of_functions: dict[DeclaredLimit, BoundLimit] = {}

    def init_app(self, app: Flask) -> None:
        """Limits an application from now on."""
        if not isinstance(app, Flask):
            raise ConfigError(f"Tidegate limits a Flask application, not {shown(app)}")
        if NAME in app.extensions:
            raise ConfigError("this application has a Tidegate already")
        self.enabled = enabled_layer(self._enabled_option)
        self._is_enabled(app)
        app.extensions[NAME] = self
        self._apps.append(app)
        # Not before_request: functions that are registered later may still have to authenticate the user.
        app.dispatch_request = self._checked_dispatch(app, app.dispatch_request)  # type: ignore[method-assign]
        # Not after_request: with a changed response, Flask copies and inspects every header once more.
        app.wsgi_app = announcing(app.wsgi_app)  # type: ignore[method-assign]

    def _is_enabled(self, app: Flask) -> bool:
        setting = app.config.get(VARIABLE)
        return self.enabled if setting is None else enabled_setting(setting, f"app.config[{VARIABLE!r}]")

    def _check_decorator_order(self, view: Any, decorator: str) -> None:
        check_decorated(view, decorator, self._apps)

    def _with_limit(self, view: Any, declared: DeclaredLimit | None) -> Any:
        limits = [(self, declared), *getattr(view, LIMITS, ())]
        if isinstance(view, Blueprint):
            view.before_request(functools.partial(self._check_attached, view))
            setattr(view, LIMITS, limits)
            return view
        if inspect.isclass(view):
            if issubclass(view, View):
                view.dispatch_request = self._enforced(view.dispatch_request, view, declared)  # type: ignore[method-assign]
            setattr(view, LIMITS, limits)
            return view
        limited = self._enforced(view, view, declared)
        setattr(limited, LIMITS, limits)
        self._decorated_views.add(view, limited)
        return limited

    def _enforced(self, function: Any, view: Any, declared: DeclaredLimit | None) -> Any:
        """The function; it checks its limit when it runs and the limit was not checked for the request."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def enforced_async(*args: Any, **kwargs: Any) -> Any:
                if declared not in _CHECKED.get():
                    self._check_function(view, declared)
                return await function(*args, **kwargs)

            return enforced_async

        @functools.wraps(function)
        def enforced(*args: Any, **kwargs: Any) -> Any:
            if declared not in _CHECKED.get():
                self._check_function(view, declared)
            return function(*args, **kwargs)

        return enforced

    def _check_attached(self, view: Any) -> None:
        """Raises when the request is served by an application that is not one of this Tidegate."""
        if flask.has_request_context() and flask.current_app.extensions.get(NAME) is not self:
            raise ConfigError(
                f"{name_of(view)} has a limit of a Tidegate that is not attached to the application that serves it: "
                "give it the application, Tidegate(app, …) or tg.init_app(app)"
            )

    def _check_function(self, view: Any, declared: DeclaredLimit | None) -> None:
        """Checks the limit of a function that is not known as a view of the request."""
        self._check_attached(view)
        # Without a request, a test calls the view as a function.
        if not flask.has_request_context() or declared is None or not declared.enabled:
            return
        app: Flask = flask.current_app._get_current_object()  # type: ignore[attr-defined]
        if not self._is_enabled(app):
            return
        bound = self._limits_of_functions.get(declared)
        if bound is None:
            self._places.check(view)
            bound = self._limits_of_functions[declared] = self._bind(declared, name_of(view))
            if bound.has_follow_up:
                self._hook_responses(app)
        answer = self._check(app, (bound,), _current_request())
        if answer is not None:
            flask.abort(app.make_response(answer))

    def _checked_dispatch(self, app: Flask, dispatch: Callable[..., Any]) -> Callable[..., Any]:
        limiter = self.limiter
        views: dict[tuple[str, str], ViewLimits] = self._limits_by_route.setdefault(id(app), {})

        @functools.wraps(dispatch)
        def checked(*args: Any) -> Any:
            if not self._is_enabled(app):
                return dispatch(*args)
            if limiter._generation != self._generation:
                self._refresh()
            request: flask.Request = _current_request()
            rule = request.url_rule
            if rule is None:
                answer = self._check(app, self._application, request)
                return dispatch(*args) if answer is None else answer
            try:
                view = views[rule.endpoint, request.method]
            except KeyError:
                view = self._find_limits(app, rule.endpoint, request)
            if view.limits:
                answer = self._check(app, view.limits, request)
                if answer is not None:
                    return answer
            elif not view.checked:
                return dispatch(*args)
            token = _CHECKED.set(view.checked)
            try:
                return dispatch(*args)
            finally:
                _CHECKED.reset(token)

        return checked

    def _check(self, app: Flask, limits: tuple[BoundLimit, ...], request: flask.Request) -> Any:
        """Checks a request. None: it goes on. Otherwise what `on_denied` answers; a denial without that is raised."""
        if not limits:
            return None
        environ = request.environ
        try:
            decision, fields, admission = admit_on_thread(limits, request, request.method, self.limiter)
        except StoreError as error:
            raise store_missing(app, error) from error
        except UnusableKey as error:
            raise key_refused(app, error) from error
        if decision is None:
            return None
        bound = limits[0] if admission is None else admission.bound
        earlier: Decision | None = environ.get(DECISION)
        if earlier is None or not decision:
            environ[DECISION] = decision
        else:
            # Limits of the request were checked before this one, which is that of a function that the view calls.
            known = environ.setdefault(ANNOUNCED, [earlier])
            known.append(decision)
            fields = bound.headers.text(*known)
        announce(environ, fields, denied=not decision)
        if admission is None:
            return None
        if decision:
            environ.setdefault(NAME, []).append(admission)
            return None
        if bound.on_denied is not None:
            returned = app.ensure_sync(bound.on_denied)(request, decision)
            if returned is not None:
                return answered(app, returned, decision)
        if not answers_errors(app):
            return refusal_response(app, admission)
        raise denied(app, admission)

    def _find_limits(self, app: Flask, endpoint: str, request: flask.Request) -> ViewLimits:
        self._decorated_views.check(app, endpoint)
        found = FoundLimits(self, app, endpoint, request)
        # Browsers ask with OPTIONS before they send a request that counts.
        automatic = request.method == "OPTIONS" and getattr(request.url_rule, "provide_automatic_options", False)
        static = endpoint.rpartition(".")[2] == "static" and not found.own
        limits: tuple[BoundLimit, ...] = ()
        if not (found.exempt or automatic or static):
            limits = self._limits_of_view(endpoint, found.own)
        if any(bound.has_follow_up for bound in limits):
            self._hook_responses(app)
        view = ViewLimits(limits, frozenset(declared for declared, _ in found.own))
        views = self._limits_by_route[id(app)]
        if len(views) < MAX_ROUTES:
            views[endpoint, request.method] = view
        return view

    def _bind_anew(self) -> None:
        self._bind_application()
        self._limits_of_functions.clear()
        for views in self._limits_by_route.values():
            views.clear()

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

    def _after_request(self, response: flask.Response) -> flask.Response:
        request: flask.Request = _current_request()
        admissions: list[Admission] = request.environ.get(NAME, [])
        for admission in admissions:
            if admission.refunds:
                run_steps(refund(admission, request, response), self.limiter)
        if any(admission.holds or admission.settles for admission in admissions):
            del request.environ[NAME]

            def end() -> None:
                run_steps(end_work(admissions, request, response), self.limiter)

            # A stream ends with its last byte, or when its reader leaves. Any other response is complete: it ends
            # before the client has it and may send the next request.
            if response.is_streamed:
                response.call_on_close(end)
            else:
                end()
        return response


def _teardown_request(_: BaseException | None) -> None:
    """Gives back the holds of a request that has no response."""
    for admission in flask.request.environ.get(NAME, ()):
        admission.release()
