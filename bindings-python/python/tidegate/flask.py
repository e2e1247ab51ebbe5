"""Limits for Flask.

    from tidegate.flask import Tidegate

    tg = Tidegate(app, store="redis://127.0.0.1:6379/0", default="100/minute")

    @app.get("/login")
    @tg.limit("5/minute")
    def login(): ...

Functions that you give as options get the request. A request is checked right before its view runs, after all
`before_request` functions and before the decorators of the view. `user()` is Flask-Login's `current_user` if you use
that, else `g.user`. `claim()` reads the verified claims from `g.claims`. Set these in a `before_request` function, to
None for a visitor.

A refusal that `on_denied` does not answer goes to the application's `errorhandler(429)` or `errorhandler(RateLimited)`.
A refusal because of the store goes to `errorhandler(503)` or `errorhandler(StoreError)`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import flask
from flask import Blueprint, Flask
from flask.views import View
from werkzeug.exceptions import BadRequest, HTTPException, ServiceUnavailable, TooManyRequests

from ._tidegate import Decision, Limiter, status
from .errors import ConfigError, KeyInvalid, RateLimited, StoreError
from .web.admission import DECISION, Admission, admit_on_thread, end_work, refund
from .web.functions import verb_of, with_wrapped
from .web.keys import UNAUTHENTICATED, EnvironAdapter, UnusableKey, claim, client_ip, fixed, header, user
from .web.layers import LIMITS, VARIABLE, RouteLimits, check_is_function, enabled_layer, enabled_setting, unattached
from .web.limit import BoundLimit, DeclaredLimit
from .web.refusal import Refusal
from .web.steps import run_steps

__all__ = ["Tidegate", "claim", "client_ip", "decision", "fixed", "header", "user"]


class FlaskAdapter(EnvironAdapter):
    """Reads the requests of Flask and their users."""

    authentication = (
        "set g.user and g.claims in a before_request function (None for a visitor), or use Flask-Login. "
        "The decorators of a view run after its limits, which is too late"
    )

    def environ(self, request: flask.Request) -> Mapping[str, Any]:
        return request.environ

    def user(self, request: flask.Request) -> object:
        login = sys.modules.get("flask_login")
        if login is not None and hasattr(flask.current_app, "login_manager"):
            return login.current_user
        return flask.g.get("user", UNAUTHENTICATED)

    def claims(self, request: flask.Request) -> Any:
        return flask.g.get("claims", UNAUTHENTICATED)


# The key under which an application carries its Tidegate.
NAME = "tidegate"
# The key under which an environ carries the Decisions of several checks.
ANNOUNCED = "tidegate.announced"
# The limits that are checked already for the request of the running view.
_NONE: frozenset[DeclaredLimit] = frozenset()
_CHECKED: ContextVar[frozenset[DeclaredLimit]] = ContextVar("tidegate.flask", default=_NONE)

_current_request = flask.request._get_current_object  # type: ignore[attr-defined]


def decision() -> Decision | None:
    """Returns the Decision about the current request, or None. For several policies it has `decisions`."""
    return _current_request().environ.get(DECISION) if flask.has_request_context() else None


class Tidegate(RouteLimits[Limiter, Flask]):
    """Limits of Flask applications.

    default: the policy of every view without a limit. Each such view has its own budget.
    application: one limit for all requests, checked together with the limits of their views.
    limiter: the limiter. Without it one is made from `store` and the options of a limiter (policies, prefix, timeout,
    on_store_error, deny_cache, clock).
    enabled: False turns all limits off. `app.config["TIDEGATE_ENABLED"]` overrides it. Without both, the environment
    variable TIDEGATE_ENABLED decides.
    skip: exempts requests from all limits. A limit may have its own skip as well.
    key, cost, on_denied, headers, refund_when, settle, hold_until, meta, methods, per_method: the default options of
    all limits.

    You can decorate views, async views, class views, their methods and blueprints with `limit`. All views of a
    blueprint share its limit. On any other function it counts the calls that requests make. A notation counts for its
    place: the endpoint (`login`, `api.login`), the endpoint and the method of a class view (`login.post`), a whole
    blueprint (`api.*`), or the whole application (`*`). HEAD counts as GET. The OPTIONS responses of Flask itself and
    its static files have no limits.
    """

    _limiter_class = Limiter
    _awaits = False
    _adapter = FlaskAdapter()
    _app_class, _app_name = Flask, "Flask"

    def _configure(self, *args: Any) -> None:
        super()._configure(*args)
        # The key under which an environ carries its admissions.
        self._name = f"tidegate.{id(self)}"
        self._hooks_lock = threading.Lock()
        # By view, the functions that its decorators returned. They reveal views that are registered without limits.
        self._limited: weakref.WeakKeyDictionary[Any, list[weakref.ref[Any]]] = weakref.WeakKeyDictionary()
        # The functions with limits that are not views, by the names under which their notations count.
        self._code_by_name: dict[str, Any] = {}

    def init_app(self, app: Flask) -> None:
        """Limits an application from now on."""
        self.enabled = enabled_layer(self._enabled_option)
        super().init_app(app)
        app.extensions[NAME] = self
        # Not before_request: functions that are registered later may still have to authenticate the user.
        app.dispatch_request = self._checked_dispatch(app, app.dispatch_request)  # type: ignore[method-assign]
        # Not after_request: with a changed response, Flask copies and inspects every header once more.
        app.wsgi_app = self._announcing(app.wsgi_app)  # type: ignore[method-assign]

    def _is_enabled(self, app: Flask) -> bool:
        setting = app.config.get(VARIABLE)
        return self.enabled if setting is None else enabled_setting(setting, f"app.config[{VARIABLE!r}]")

    def _check_decorator_order(self, view: Any, decorator: str) -> None:
        check_is_function(view, f"tg.{decorator}")
        if isinstance(view, Flask):
            raise ConfigError(
                f"@tg.{decorator} must stand above a view: to limit a whole application, write Tidegate(app, "
                "application=…)"
            )
        if inspect.isclass(view) and not issubclass(view, View):
            raise ConfigError(
                f"@tg.{decorator} must stand above a class view, and {name_of(view)} is not a flask.views.View: "
                "put it above the function that serves requests"
            )
        if not callable(view) and not isinstance(view, Blueprint):
            kind = type(view).__name__
            raise ConfigError(
                f"@tg.{decorator} must get a view, a class view or a blueprint, not an object of type {kind}"
            )
        if any(view is known for app in self._apps for known in app.view_functions.values()):
            raise self._above_route(name_of(view), decorator)

    def _with_limit(self, view: Any, declared: DeclaredLimit | None) -> Any:
        limited = view
        if isinstance(view, Blueprint):
            view.before_request(functools.partial(self._check_attached, view))
        elif not inspect.isclass(view):
            limited = self._enforced(view, view, declared)
            # Some objects have no weak references or no hash.
            with contextlib.suppress(TypeError):
                self._limited.setdefault(view, []).append(weakref.ref(limited))
        elif issubclass(view, View):
            view.dispatch_request = self._enforced(view.dispatch_request, view, declared)  # type: ignore[method-assign]
        # A limit of None exempts the view.
        setattr(limited, LIMITS, [(self, declared), *getattr(view, LIMITS, ())])
        return limited

    def _enforced(self, function: Any, view: Any, declared: DeclaredLimit | None) -> Any:
        """Returns the function. It checks its limit when it runs, unless the request was checked for it already."""
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
        """Raises if this Tidegate does not belong to the application that serves the request."""
        if flask.has_request_context() and flask.current_app.extensions.get(NAME) is not self:
            raise unattached(name_of(view))

    def _check_function(self, view: Any, declared: DeclaredLimit | None) -> None:
        """Checks the limit of a function that is not known as a view of the request."""
        self._check_attached(view)
        # Without a request, a test calls the view as a function.
        if not flask.has_request_context() or declared is None or not declared.enabled:
            return
        app: Flask = flask.current_app._get_current_object()  # type: ignore[attr-defined]
        if not self._is_enabled(app):
            return
        bound = self._limits_by_route.get(declared)
        if bound is None:
            function = inspect.unwrap(view)
            name, code = name_of(function), getattr(function, "__code__", type(function))
            if self._code_by_name.setdefault(name, code) is not code:
                raise ConfigError(
                    f"two functions with limits are named {name}, so that their notations would be one budget: "
                    "rename one, or give each policy a name"
                )
            bound = self._limits_by_route[declared] = self._bind(declared, name_of(view))
            if bound.has_follow_up:
                self._hook_responses(app)
        answer = self._check(app, (bound,), _current_request())
        if answer is not None:
            flask.abort(app.make_response(answer))

    def _checked_dispatch(self, app: Flask, dispatch: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(dispatch)
        def checked(*args: Any) -> Any:
            if not self._is_enabled(app):
                return dispatch(*args)
            self._refresh()
            request: flask.Request = _current_request()
            rule = request.url_rule
            limits, checks = self._application, _NONE
            if rule is not None:
                try:
                    limits, checks = self._limits_by_route[(id(app), rule.endpoint), request.method]
                except KeyError:
                    limits, checks = self._find_limits(app, rule.endpoint, request)
            if limits and (answer := self._check(app, limits, request)) is not None:
                return answer
            if not limits and not checks:
                return dispatch(*args)
            token = _CHECKED.set(checks)
            try:
                return dispatch(*args)
            finally:
                _CHECKED.reset(token)

        return checked

    def _check(self, app: Flask, limits: tuple[BoundLimit, ...], request: flask.Request) -> Any:
        """Checks a request. Returns None if it goes on, or the response of a refusal, or raises for error handlers."""
        try:
            admission = admit_on_thread(limits, request, request.method, self.limiter)
        except (StoreError, UnusableKey) as error:
            raise refused(app, error) from error
        if admission is None:
            return None
        environ, decision, bound = request.environ, admission.decision, admission.bound
        environ.setdefault(self._name, []).append(admission)
        earlier: Decision | None = environ.get(DECISION)
        if earlier is None or not decision:
            environ[DECISION] = decision
        else:
            # Limits of the request were checked before this one, which belongs to a function that the view calls.
            known = environ.setdefault(ANNOUNCED, [earlier])
            known.append(decision)
            admission.fields = bound.headers.text(*known)
        if decision:
            return None
        if bound.on_denied is not None:
            returned = app.ensure_sync(bound.on_denied)(request, decision)
            if returned is not None:
                return answered(app, returned, decision)
        if not answers_errors(app):
            return refusal_response(app, Refusal(admission))
        raise refused(app, admission)

    def _find_limits(self, app: Flask, endpoint: str, request: flask.Request) -> Any:
        """Returns the limits of an endpoint and method, and the limits that a running view need not check any more.

        The latter include limits that do not apply to the request.
        """
        self._check_registered(app, endpoint)
        own: dict[DeclaredLimit, str] = {}
        exempt = False

        def add(written_at: Any, place: str, *, exempts: bool = True) -> None:
            nonlocal exempt
            for owner, declared in getattr(written_at, LIMITS, ()):
                if declared is None:
                    exempt = exempt or exempts
                elif owner is self:
                    own.setdefault(declared, place)

        for view in _views(app, endpoint):
            add(view, endpoint)
            if (view_class := getattr(view, "view_class", None)) is not None:
                add(view_class, endpoint)
                name = verb_of(view_class, request.method)
                for one in _wrapping(getattr(view_class, name, None)):
                    add(one, f"{endpoint}.{name}")
        at_view = bool(own)
        for name in request.blueprints:
            # A view of an exempt blueprint may still have its own limit.
            add(app.blueprints[name], f"{name}.*", exempts=not at_view)
        # Browsers ask with OPTIONS before they send a request that counts.
        automatic = request.method == "OPTIONS" and getattr(request.url_rule, "provide_automatic_options", False)
        static = endpoint.rpartition(".")[2] == "static" and not own
        limits = () if exempt or automatic or static else self._limits_of_view(endpoint, own.items())
        if any(bound.has_follow_up for bound in limits):
            self._hook_responses(app)
        found = limits, frozenset(own)
        self._remember((id(app), endpoint), request.method, found)
        return found

    def _check_registered(self, app: Flask, endpoint: str) -> None:
        """Raises if the view of an endpoint was limited above its route, so that no request can reach the limit."""
        view = app.view_functions[endpoint]
        try:
            limited = [reference() for reference in self._limited.get(view, ())]
        except TypeError:
            return
        if not limited or any(getattr(view, LIMITS, ())):
            return
        reached = {id(one) for registered in app.view_functions.values() for one in _wrapping(registered)}
        if all(one is None or id(one) not in reached for one in limited):
            raise self._above_route(name_of(view), "limit")

    def _announcing(self, wsgi_app: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the application. Its responses have the fields of the last admission after their headers."""

        def announcing_app(environ: Any, start_response: Callable[..., Any]) -> Any:
            admissions: list[Admission] = []
            environ[self._name] = admissions

            def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
                fields = admissions[-1].fields if admissions else ()
                if admissions and not admissions[-1].decision:
                    # The fields that an error handler or `on_denied` sets come first.
                    others = {name.lower() for name, _ in headers}
                    fields = [field for field in fields if field[0].lower() not in others]
                return start_response(status, [*headers, *fields], *error)

            return wsgi_app(environ, start)

        return announcing_app

    def _hook_responses(self, app: Flask) -> None:
        """Registers `_after_request` and `_teardown_request`, only if needed: they cost every request a microsecond."""
        with self._hooks_lock:
            after, teardown = app.after_request_funcs, app.teardown_request_funcs
            if self._after_request not in after.get(None, ()):
                # The first in a list runs last. The lists are replaced, since a request may be iterating over them.
                after[None] = [self._after_request, *after.get(None, ())]
                teardown[None] = [self._teardown_request, *teardown.get(None, ())]

    def _after_request(self, response: flask.Response) -> flask.Response:
        request: flask.Request = _current_request()
        admissions: list[Admission] = request.environ.pop(self._name, [])
        run_steps(refund(admissions, request, response), self.limiter)
        if any(admission.holds or admission.settles for admission in admissions):

            def end() -> None:
                run_steps(end_work(admissions, request, response), self.limiter)

            # A stream ends with its last byte, or when its reader leaves. Any other response is complete: it ends
            # before the client has it and may send the next request.
            if response.is_streamed:
                response.call_on_close(end)
            else:
                end()
        return response

    def _teardown_request(self, _: BaseException | None) -> None:
        """Gives back the holds of a request that has no response."""
        for admission in flask.request.environ.get(self._name, ()):
            admission.release()


class _Refused:
    """The common part of the exceptions of a refusal. Each is also an exception of Tidegate and one of Werkzeug."""

    __str__ = HTTPException.__str__

    def __init__(self, given: Any, response: flask.Response) -> None:
        super().__init__(given)  # type: ignore[call-arg]
        self.code, self.response = response.status_code, response


class Denied(_Refused, RateLimited, TooManyRequests):  # type: ignore[misc]
    """A request was denied. To answer it, use `errorhandler(429)` or `errorhandler(RateLimited)`.

    As in every exception of Werkzeug, `code` is the status and `description` is for the client.
    """

    def __init__(self, decision: Decision, response: flask.Response) -> None:
        super().__init__(decision, response)
        wait = decision.retry_after
        again = "" if wait is None else f", try again in {max(wait, 0.001):.3f} s"
        self.description = f"{decision.policy}: too many requests{again}"


class Unavailable(_Refused, RateLimited, ServiceUnavailable):  # type: ignore[misc]
    """A request was denied because the store is missing. Use `errorhandler(503)` or `errorhandler(RateLimited)`."""


class StoreMissing(_Refused, StoreError, ServiceUnavailable):  # type: ignore[misc]
    """The store did not answer, and the cause has the code. Use `errorhandler(503)` or `errorhandler(StoreError)`."""


class KeyRefused(_Refused, KeyInvalid, BadRequest):  # type: ignore[misc]
    """The client of a request made its key unusable. Use `errorhandler(400)` or `errorhandler(KeyInvalid)`."""


def refusal_response(app: Flask, refusal: Refusal) -> flask.Response:
    """Returns the response to a refused request that no error handler answers."""
    return app.response_class(refusal.body, refusal.status, refusal.fields)


def refused(app: Flask, cause: Admission | StoreError | KeyInvalid) -> HTTPException:
    """Returns the exception of a refused request, with the response that it gets if no error handler answers it."""
    refusal = Refusal(cause)
    kind: Any = refusal.one_of(Denied if refusal.status == 429 else Unavailable, StoreMissing, KeyRefused)
    return kind(refusal.arguments[0], refusal_response(app, refusal))  # type: ignore[no-any-return]


def answers_errors(app: Flask) -> bool:
    """True if an application may answer exceptions itself. If it does not, a response costs half as much."""
    own, kind = vars(app), type(app)
    return (
        any(handlers for codes in app.error_handler_spec.values() for handlers in codes.values())
        or any(
            name in own or getattr(kind, name) is not getattr(Flask, name)
            for name in ("handle_user_exception", "handle_http_exception")
        )
        or bool(app.config["TRAP_HTTP_EXCEPTIONS"])
    )


def answered(app: Flask, given: Any, decision: Decision) -> Any:
    """Turns the result of `on_denied` into the answer to a refused request.

    If it sets no status, it gets the status of the refusal.
    """
    if isinstance(given, tuple) and len(given) > 1 and isinstance(given[1], (int, str)):
        return given
    response = app.make_response(given)
    if response.status_code == 200:
        response.status_code = status(decision)
    return response


def _views(app: Flask, endpoint: str) -> Iterator[Any]:
    """Returns the view of an endpoint and the functions that its decorators wrap, except those that are views too."""
    view = app.view_functions[endpoint]
    registered = {id(one) for one in app.view_functions.values() if one is not view}
    return (one for one in _wrapping(view) if id(one) not in registered)


def _wrapping(view: Any) -> Iterator[Any]:
    return with_wrapped(view, lambda one: not isinstance(one, (Flask, Blueprint)))


def name_of(view: Any) -> str:
    """Returns the name of a decorated object. It is the same in every process."""
    if isinstance(view, Blueprint):
        return f"blueprint {view.name}"
    name = getattr(view, "__qualname__", type(view).__qualname__)
    # All views that classes make have the same long name.
    return f"{getattr(view, '__module__', '')}.{view.__name__ if name.endswith('as_view.<locals>.view') else name}"
