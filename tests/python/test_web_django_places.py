"""The places where a limit may stand in Django."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from tidegate import ConfigError, Limiter, PolicyError
from tidegate.http import placed_key
from web_django import django_settings, statuses
from web_django_views import Hides, hides, new_view

settings = django_settings()

from django.http import HttpRequest, HttpResponse  # noqa: E402
from django.test import RequestFactory, override_settings  # noqa: E402
from django.utils.decorators import method_decorator  # noqa: E402
from django.views import View  # noqa: E402

from tidegate.django import exempt, limit, user  # noqa: E402


def test_decorators_that_hide_a_limit(serve: Any, asynchronous: bool) -> None:
    limited = [limit("1/minute")(new_view(asynchronous)) for _ in range(3)]
    views = {"plain": limited[0], "hidden": hides(limited[1])}
    if not asynchronous:
        views["deep"] = Hides(limited[2])
    get = serve(views, asynchronous, default="3/minute", application="100/minute")
    for route in views:
        assert statuses(get, route) == [200, 429, 429], route
        assert get(route)["Content-Type"] == "application/problem+json"


def test_a_hidden_limit_replaces_the_default(serve: Any) -> None:
    limiter = Limiter(policies={"d": "9/minute", "own": "5/minute", "all": "9/minute"})
    get = serve({"": Hides(limit("own")(new_view()))}, default="d", application="all", limiter=limiter)
    for left in (4, 3):
        seen = get("")
        assert set(seen.items("RateLimit")) == {"own", "all"} and seen.items("RateLimit")["own"]["r"] == left
    assert limiter.peek("d", "203.0.113.9").remaining == 9
    assert limiter.peek("all", "203.0.113.9").remaining == 7
    get = serve({"": Hides(exempt(new_view()))}, default="d", application="all", limiter=limiter)
    for _ in range(2):
        assert "RateLimit" not in get("")
    assert limiter.peek("all", "203.0.113.9").remaining == 7


def test_callable_objects_and_partials(serve: Any, asynchronous: bool) -> None:
    class Plain:
        def __call__(self, request: Any) -> HttpResponse:
            return HttpResponse("object")

    class Async:
        async def __call__(self, request: Any) -> HttpResponse:
            return HttpResponse("object")

    @limit("1/minute")
    class Decorated(Plain):
        def __call__(self, request: Any) -> HttpResponse:
            return HttpResponse("object")

    views = {
        "object": limit("1/minute")(Plain()),
        "async": limit("1/minute")(Async()),
        "class": Decorated(),
        "partial": limit("1/minute")(functools.partial(new_view(), extra=1)),
    }
    get = serve(views, asynchronous)
    for route in views:
        assert statuses(get, route) == [200, 429, 429], route


def test_defaults_are_a_budget_for_each_view(serve: Any) -> None:
    def one(request: Any, **_: Any) -> HttpResponse:
        return HttpResponse("one")

    def two(request: Any, **_: Any) -> HttpResponse:
        return HttpResponse("two")

    views = {
        "one": functools.partial(one, a=1),
        "two": functools.partial(two, a=1),
        "three": lambda request: HttpResponse("three"),
        "four": lambda request: HttpResponse("four"),
    }
    get = serve(views, default="1/minute")
    for route in views:
        assert statuses(get, route, 2) == [200, 429], route


def test_a_helper_that_gets_the_request(serve: Any, asynchronous: bool) -> None:
    @limit("1/minute")
    def helper(request: Any) -> dict[str, int]:
        return {"answer": 42}

    def view(request: Any) -> HttpResponse:
        return HttpResponse(json.dumps(helper(request)))

    class Whole(View):
        @limit("1/minute")
        def numbers(self) -> list[int]:
            return [1]

        def get(self, request: Any) -> HttpResponse:
            return HttpResponse(str(self.numbers()))

    get = serve({"function": view, "method": Whole.as_view()}, asynchronous)
    for route in ("function", "method"):
        assert statuses(get, route) == [200, 429, 429], route


def test_a_helper_without_a_request_is_an_error(serve: Any) -> None:
    @limit("1/minute")
    def helper(number: int) -> int:
        return number

    def view(request: Any) -> HttpResponse:
        return HttpResponse(str(helper(1)))

    with pytest.raises(ConfigError, match=r"helper has a limit and was called without a request.*limiter\.limit"):
        serve({"": view})("")
    assert serve({"": view}, enabled=False)("").status == 200


def test_what_is_no_view_is_an_error_where_it_is_written() -> None:
    class Form:
        pass

    for wrong in (Form, 7, staticmethod(new_view()), property(new_view())):
        with pytest.raises(ConfigError, match=r"Form|int|above|below"):
            limit("1/minute")(wrong)
        with pytest.raises(ConfigError):
            exempt(wrong)
    with pytest.raises(PolicyError):
        limit("5/minut")
    with pytest.raises(TypeError, match="did you mean 'key'"):
        limit("5/minute", kee="x")  # type: ignore[call-arg]


def test_a_limit_without_its_parentheses_is_an_error(serve: Any, asynchronous: bool) -> None:
    get = serve({"": limit(new_view())}, asynchronous)
    with pytest.raises(ConfigError, match=r'view\) is a decorator of views.*@limit\("5/minute"\)'):
        get("")


def test_async_class_views(serve: Any, asynchronous: bool) -> None:
    @limit("1/minute")
    class Whole(View):
        async def get(self, request: Any) -> HttpResponse:
            return HttpResponse("get")

    @method_decorator(limit("1/minute"), name="dispatch")
    class Dispatched(View):
        async def get(self, request: Any) -> HttpResponse:
            return HttpResponse("get")

    class One(View):
        @limit("1/minute")
        async def get(self, request: Any) -> HttpResponse:
            return HttpResponse("get")

    class Plain(View):
        async def get(self, request: Any) -> HttpResponse:
            return HttpResponse("get")

    views = {
        "whole": Whole.as_view(),
        "dispatched": Dispatched.as_view(),
        "one": One.as_view(),
        "outside": limit("1/minute")(Plain.as_view()),
        "hidden": hides(Whole.as_view()),
    }
    get = serve(views, asynchronous)
    for route in ("whole", "dispatched", "one", "outside"):
        assert statuses(get, route) == [200, 429, 429], route
    assert statuses(get, "hidden") == [429] * 3, "a class has one budget"


def test_limits_of_a_class_and_its_method_are_asked_together(serve: Any) -> None:
    limiter = Limiter(policies={"whole": "2/minute", "one": "1/minute", "all": "9/minute"})

    @limit("whole")
    class Both(View):
        @limit("one")
        def get(self, request: Any) -> HttpResponse:
            return HttpResponse("get")

    get = serve({"": Both.as_view()}, limiter=limiter, application="all")
    assert statuses(get, "") == [200, 429, 429]
    # All or nothing: a request that one of them denies is not charged to the others.
    assert limiter.peek("whole", "203.0.113.9").remaining == 1
    assert limiter.peek("all", "203.0.113.9").remaining == 8


def test_a_notation_counts_for_its_place(serve: Any) -> None:
    limiter = Limiter()
    get = serve({"a": limit("1/minute")(new_view()), "plain": new_view()}, limiter=limiter, default="1/hour")
    assert [get("a").status, get("a").status, get("plain").status] == [200, 429, 200]
    # All functions from one function have the same name, so their key also contains the route.
    name = f"{new_view.__module__}.new_view.<locals>.view"
    limiter.clear("1/minute", placed_key(f"{name} a", "203.0.113.9"))
    assert get("a").status == 200
    assert limiter.peek("1/hour", placed_key(f"{name} plain", "203.0.113.9")).remaining == 0


def test_what_an_outer_decorator_answers_is_not_charged(serve: Any) -> None:
    def authenticates(view: Any) -> Any:
        @functools.wraps(view)
        def authenticated(request: Any) -> Any:
            if "X-Who" not in request.headers:
                return HttpResponse(status=401)
            request.user = request.headers["X-Who"]
            return view(request)

        return authenticated

    get = serve({"": authenticates(limit("1/minute", key=user())(new_view()))}, application="4/minute")
    assert statuses(get, "") == [401] * 3
    assert get("", headers={"X-Who": "a"}).status == 200
    assert get("").status == 429, "the limit of the application counts every request"


def test_a_user_that_nothing_authenticates_is_an_error(serve: Any, asynchronous: bool) -> None:
    get = serve({"": limit("1/minute", key=user())(new_view(asynchronous))}, asynchronous)
    with pytest.raises(ConfigError, match=r"user\(\).*AuthenticationMiddleware belongs into MIDDLEWARE"):
        get("")


def test_the_decision_is_there_for_the_view(serve: Any, asynchronous: bool) -> None:
    seen: list[Any] = []

    def view(request: Any) -> HttpResponse:
        seen.append(request.rate_limit)
        return HttpResponse("x")

    get = serve(
        {"own": limit("5/minute")(view), "free": exempt(view), "default": view}, asynchronous, default="7/minute"
    )
    for route in ("own", "default", "free"):
        get(route)
    assert [(one.limit, one.remaining) for one in seen[:2]] == [(5, 4), (7, 6)]
    assert seen[2] is None


def test_a_view_that_a_test_calls(serve: Any) -> None:
    request = RequestFactory().get("/")
    view = limit("1/minute")(new_view())
    with override_settings(TIDEGATE={}), pytest.raises(ConfigError, match="MIDDLEWARE"):
        view(request)
    with override_settings(TIDEGATE={"enabled": False}):
        assert view(request).status_code == 200
    assert isinstance(request, HttpRequest)


def test_policies_by_request_and_metadata(serve: Any, asynchronous: bool) -> None:
    limiter = Limiter(policies={"free": {"limits": ["1/minute"], "journal": 10}, "paid": "3/minute"})

    def plan(request: Any) -> Any:
        return {"none": None}.get(request.headers["X-Plan"], request.headers["X-Plan"])

    view = limit(plan, meta=lambda request: request.headers["X-Plan"])(new_view(asynchronous))

    class Decorated(View):
        @method_decorator(limit(plan))
        def get(self, request: Any) -> HttpResponse:
            return HttpResponse("x")

    get = serve({"": view, "m": Decorated.as_view()}, asynchronous, limiter=limiter)
    assert statuses(get, "", 2, headers={"X-Plan": "free"}) == [200, 429]
    assert statuses(get, "", 4, headers={"X-Plan": "paid"}) == [200, 200, 200, 429]
    assert statuses(get, "", 2, headers={"X-Plan": "none"}) == [200] * 2
    assert {one.meta for one in limiter.journal("free", "203.0.113.9")} <= {"free", b"free"}
    assert statuses(get, "m", 1, headers={"X-Plan": "free"}) == [429]


def test_a_default_charges_no_405_and_no_options(serve: Any) -> None:
    class Whole(View):
        def get(self, request: Any) -> HttpResponse:
            return HttpResponse("get")

    get = serve({"": Whole.as_view()}, default="1/minute")
    assert [get("", method="OPTIONS").status, get("", method="POST").status] == [200, 405]
    assert [get("", method=method).status for method in ("GET", "HEAD", "GET")] == [200, 429, 429]
    assert [get("", method="OPTIONS").status, get("", method="POST").status] == [200, 405]
