"""Limits for Django.

    # settings.py
    MIDDLEWARE = [..., "tidegate.django.TidegateMiddleware"]      # after the one that authenticates
    TIDEGATE = {"store": "redis://127.0.0.1:6379/0", "default": "100/minute"}

    # views.py
    from tidegate.django import limit

    @limit("5/minute")
    def login(request): ...

`TIDEGATE` has what a limiter has, or a `limiter`; `default`, the policy of every view without a limit of its own; and
the options that limits have that say nothing else. Functions given as options get the request. `user()` reads
`request.user`, `claim()` the verified claims in `request.claims`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from ._tidegate import Limiter, Policy
from .errors import ConfigError
from .web.admission import Ticket, admit, refund, settle
from .web.answer import Answer
from .web.environ import EnvironFace
from .web.guard import Guard
from .web.keys import Key, claim, client_ip, header, user
from .web.layers import Layer
from .web.options import OPTIONS, Rule
from .web.steps import Steps, arun, run

__all__ = ["Key", "TidegateMiddleware", "claim", "client_ip", "exempt", "header", "limit", "user"]

View = TypeVar("View", bound=Any)

# Where a request carries its ticket.
NAME = "tidegate"
# Where a view carries its limits: a list of Rules; None is exempt.
MARK = "__tidegate__"


class _Face(EnvironFace):
    """How a request of Django is read."""

    def environ(self, request: HttpRequest) -> Mapping[str, Any]:
        meta: Mapping[str, Any] = request.META
        return meta

    def user(self, request: HttpRequest) -> object:
        return getattr(request, "user", None)

    def claims(self, request: HttpRequest) -> Mapping[str, Any] | None:
        return getattr(request, "claims", None)


FACE = _Face()


def limit(policy: str | Policy | Sequence[Any], **options: Any) -> Callable[[View], View]:
    """A decorator for views, async views and class views; also through `method_decorator`. It needs the middleware.

    The options are key, cost, skip, on_denied, headers, refund_when, settle and methods.
    """
    if callable(policy):
        raise ConfigError('write @limit("5/minute"): @limit alone has no policy')
    rule = _Given(policy, options)

    def mark(view: View) -> View:
        if not callable(view):
            raise ConfigError(f"@limit is for views and class views, not for {view!r}: it stands above the view itself")
        marked: View = _marked(view, [rule, *getattr(view, MARK, ())])
        return marked

    return mark


def exempt(view: View) -> View:
    """A decorator for views that nothing limits."""
    marked: View = _marked(view, [None])
    return marked


class _Given:
    """A limit as it was written; what it lacks, the settings say."""

    def __init__(self, policy: Any, options: dict[str, Any]) -> None:
        Rule(policy, **options)
        self.policy, self.options = policy, options

    def rule(self, shared: dict[str, Any], scope: str) -> Rule:
        return Rule(self.policy, **{**shared, "scope": scope, **self.options})


def _marked(view: Any, marks: list[_Given | None]) -> Any:
    """The view, which finds out whether anybody was asked. Limits nobody enforces are worse than none."""
    if inspect.isclass(view):
        setattr(view, MARK, marks)
        kind: Any = view
        kind.dispatch = _marked(kind.dispatch, marks)
        return kind

    def check(args: tuple[Any, ...]) -> None:
        request = next((one for one in args if isinstance(one, HttpRequest)), None)
        if request is not None and not hasattr(request, NAME):
            raise ConfigError(
                f"{_name(view)} has a limit, but nobody enforces it: "
                "put 'tidegate.django.TidegateMiddleware' into MIDDLEWARE"
            )

    if iscoroutinefunction(view):

        @functools.wraps(view)
        async def called(*args: Any, **kwargs: Any) -> Any:
            check(args)
            return await view(*args, **kwargs)

        setattr(called, MARK, marks)
        return called

    @functools.wraps(view)
    def limited(*args: Any, **kwargs: Any) -> Any:
        check(args)
        return view(*args, **kwargs)

    setattr(limited, MARK, marks)
    return limited


def _name(view: Any) -> str:
    return f"{getattr(view, '__module__', '')}.{getattr(view, '__qualname__', type(view).__name__)}"


class TidegateMiddleware(Layer[Limiter]):
    """Asks before a view is called, in threads and on event loops alike."""

    sync_capable = True
    async_capable = True
    _kind = Limiter
    _face = FACE

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        given = dict(getattr(settings, "TIDEGATE", {}))
        self.get_response = get_response
        # What is no option of limits is one of the limiter.
        shared = {name: given.pop(name) for name in OPTIONS if name in given}
        default, store, limiter = (given.pop(name, None) for name in ("default", "store", "limiter"))
        self._begin(limiter, store, given, **shared)
        self._async = iscoroutinefunction(get_response)
        self._waiting = self.limiter.to_async()
        self._default = () if default is None else (self._guard(Rule(default, **self._options)),)
        self._known: dict[Any, tuple[Guard, ...]] = {}
        if self._async:
            markcoroutinefunction(self)
        self.process_view = self._aview if self._async else self._view

    def __call__(self, request: HttpRequest) -> Any:
        setattr(request, NAME, None)
        if self._async:
            return self._acall(request)
        try:
            response = self.get_response(request)
            if (ticket := getattr(request, NAME)) is not None:
                self._sync(self._answered(ticket, request, response))
                return response
        except BaseException:
            _give_up(request)
            raise
        return response

    async def _acall(self, request: HttpRequest) -> Any:
        try:
            response = await self.get_response(request)
            if (ticket := getattr(request, NAME)) is not None:
                await arun(self._answered(ticket, request, response), self._waiting)
        except BaseException:
            _give_up(request)
            raise
        return response

    def _sync(self, steps: Steps[Any]) -> Any:
        return run(steps, self.limiter)

    def _view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponseBase | None:
        guards = self._guards(view, request.method)
        ticket = run(admit(guards, request, request.method), self.limiter) if guards else None
        if ticket is None:
            return None
        setattr(request, NAME, ticket)
        if not ticket.denied:
            return None
        given = None if ticket.guard.on_denied is None else ticket.guard.on_denied(request, ticket.decision)
        return _refusal(ticket) if given is None else given

    async def _aview(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponseBase | None:
        guards = self._guards(view, request.method)
        ticket = await arun(admit(guards, request, request.method), self._waiting) if guards else None
        if ticket is None:
            return None
        setattr(request, NAME, ticket)
        if not ticket.denied:
            return None
        given = None if ticket.guard.on_denied is None else ticket.guard.on_denied(request, ticket.decision)
        if inspect.isawaitable(given):
            given = await given
        return _refusal(ticket) if given is None else given

    def _guards(self, view: Any, method: str | None) -> tuple[Guard, ...]:
        place = getattr(view, "view_class", view)
        try:
            return self._known[place, method]
        except (KeyError, TypeError):
            pass
        scope = _name(place)
        marks = [(mark, scope) for mark in getattr(view, MARK, ()) or getattr(place, MARK, ())]
        if place is not view and method is not None:
            own = getattr(getattr(place, method.lower(), None), MARK, ())
            marks += [(mark, f"{scope}.{method.lower()}") for mark in own]
        found = tuple(self._guard(mark.rule(self._options, scope)) for mark, scope in marks if mark is not None)
        guards = () if any(mark is None for mark, _ in marks) else found or self._default
        # A client may make up methods, a server has few.
        if len(self._known) < 100_000:
            self._known[place, method] = guards
        return guards

    def _answered(self, ticket: Ticket, request: HttpRequest, response: HttpResponseBase) -> Steps[None]:
        yield from refund(ticket, request, response)
        for name, value in ticket.guard.headers.text(*ticket.decisions):
            response.headers[name] = value
        if not (ticket.holds or ticket.settles):
            return
        if getattr(response, "streaming", False):
            # A stream ends with its last byte or its reader; Django closes it on a thread.
            response._resource_closers.append(lambda: self._end(ticket, request, response))
            return
        ticket.release()
        yield from settle(ticket, request, response)

    def _end(self, ticket: Ticket, request: HttpRequest, response: HttpResponseBase) -> None:
        ticket.release()
        run(settle(ticket, request, response), self.limiter)


def _refusal(ticket: Ticket) -> HttpResponse:
    answer = Answer(ticket)
    return HttpResponse(answer.body, status=answer.status, headers=dict(answer.fields))


def _give_up(request: HttpRequest) -> None:
    if (ticket := getattr(request, NAME, None)) is not None:
        ticket.release()
