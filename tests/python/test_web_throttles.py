"""Django REST framework: throttle classes, and its answer to a refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegate import ConfigError, Limiter, Policy
from web_django import django_settings, statuses
from web_rest_framework import TokenAuthentication, answer

settings = django_settings()

from rest_framework.decorators import api_view, throttle_classes  # noqa: E402
from rest_framework.exceptions import Throttled  # noqa: E402
from rest_framework.response import Response  # noqa: E402
from rest_framework.throttling import BaseThrottle  # noqa: E402
from rest_framework.views import APIView, exception_handler  # noqa: E402

from tidegate.django import fixed, header, limit  # noqa: E402
from tidegate.django.layer import standalone_layer  # noqa: E402
from tidegate.django.rest_framework import (  # noqa: E402
    AnonRateThrottle,
    RequestThrottled,
    ScopedRateThrottle,
    TidegateThrottle,
    UserRateThrottle,
)
from tidegate.web.limit import MAX_POLICIES  # noqa: E402

handled: list[Any] = []


def own_handler(exc: Exception, context: Any) -> Any:
    handled.append(exc)
    response = exception_handler(exc, context)
    if response is not None:
        response.data = {"own": response.status_code}
    return response


def test_a_denial_is_throttled_for_the_exception_handler(serve: Any) -> None:
    view = api_view(["GET"])(limit("fixed-window 1/minute")(answer))
    get = serve({"": view})
    assert get("").status == 200
    seen = get("")
    assert (seen.status, seen["Content-Type"]) == (429, "application/problem+json")
    problem = json.loads(seen.body)
    assert problem["detail"].startswith("Request was throttled. Expected available in ")
    assert problem["violated-policies"] == ["fixed-window 1/minute"] and problem["status"] == 429
    assert seen["Retry-After"] == str(int(seen["Retry-After"])) and "RateLimit" in seen
    handled.clear()
    own = {
        "EXCEPTION_HANDLER": own_handler,
        "DEFAULT_THROTTLE_CLASSES": [],
        "DEFAULT_THROTTLE_RATES": {"anon": "1/day"},
    }
    throttled = throttle_classes([AnonRateThrottle])(lambda request: Response({}))
    get = serve({"": view, "t": api_view(["GET"])(throttled)}, rest=own)
    for route in ("", "t"):
        assert get(route).status == 200
        seen = get(route)
        assert (seen.status, json.loads(seen.body)) == (429, {"own": 429})
        assert seen["Retry-After"] and "RateLimit" in seen
    assert isinstance(handled[0], RequestThrottled) and not handled[0].decision
    assert all(isinstance(exc, Throttled) and exc.wait for exc in handled)


def test_a_missing_store_is_503_for_the_exception_handler(serve: Any) -> None:
    gone = {"store": "redis://127.0.0.1:1/0"}

    @limit("1/minute")
    class Whole(APIView):
        get = answer

    class Throttles(TidegateThrottle):
        policy = "1/minute"

    views = {
        "below": api_view(["GET"])(limit("1/minute")(answer)),
        "whole": Whole.as_view(),
        "throttle": api_view(["GET"])(throttle_classes([Throttles])(lambda request: Response({}))),
    }
    for on_store_error in ("raise", "closed"):
        get = serve(views, on_store_error=on_store_error, **gone)
        for route in views:
            seen = get(route)
            assert (seen.status, seen["Content-Type"]) == (503, "application/problem+json"), (route, on_store_error)
            assert int(seen["Retry-After"]) >= 1
        get = serve(views, on_store_error=on_store_error, rest={"EXCEPTION_HANDLER": own_handler}, **gone)
        assert [json.loads(get(route).body) for route in views] == [{"own": 503}] * 3


@pytest.mark.parametrize("middleware", [[], ["tidegate.django.TidegateMiddleware"]])
def test_throttle_classes_with_rates_from_the_settings(serve: Any, middleware: list[str]) -> None:
    class Throttled(APIView):
        authentication_classes = [TokenAuthentication]  # noqa: RUF012
        throttle_classes = [AnonRateThrottle, UserRateThrottle]  # noqa: RUF012
        get = answer

    class Other(Throttled):
        pass

    rest = {"DEFAULT_THROTTLE_RATES": {"anon": "1/day", "user": "2/day; 100/week"}}
    get = serve({"a": Throttled.as_view(), "b": Other.as_view()}, rest=rest, middleware=middleware)
    # One budget for all views, as with the throttles of Django REST framework.
    assert [get("a").status, get("b").status] == [200, 429]
    for token in ("x", "y"):
        assert statuses(get, "a", 3, headers={"X-Token": token}) == [200, 200, 429]
    seen = get("b", headers={"X-Token": "x"})
    assert seen.status == 429 and int(seen["Retry-After"]) > 3600
    assert seen["X-RateLimit-Limit"] == "2" and seen["Content-Type"] == "application/problem+json"
    seen = get("a", headers={"X-Token": "z"})
    assert (seen.status, seen["X-RateLimit-Remaining"]) == (200, "1")


def test_scopes_policies_and_proxies(serve: Any) -> None:
    limiter = Limiter(policies={"uploads": "1/minute", "burst": "1/minute"})

    class Burst(TidegateThrottle):
        policy = "burst"
        key = staticmethod(lambda request: request.headers["X-Who"])

    def scoped(scope: str | None) -> Any:
        class Scoped(APIView):
            throttle_classes = [ScopedRateThrottle]  # noqa: RUF012
            throttle_scope = scope
            get = answer

        return Scoped.as_view()

    class Anon(AnonRateThrottle):
        rate = "1/minute"

    class ByKey(TidegateThrottle):
        policy = "1/minute"
        key = header("X-API-Key")

    class None_(AnonRateThrottle):
        scope = "off"

    def throttled(kind: Any) -> Any:
        return api_view(["GET"])(throttle_classes([kind])(lambda request: Response({})))

    rest = {"DEFAULT_THROTTLE_RATES": {"contacts": "2/minute", "off": None}, "NUM_PROXIES": 1}
    views = {
        "contacts": scoped("contacts"),
        "uploads": scoped("uploads"),
        "none": scoped(None),
        "unknown": scoped("unknown"),
        "burst": throttled(Burst),
        "anon": throttled(Anon),
        "by-key": throttled(ByKey),
        "off": throttled(None_),
        "forgotten": throttled(UserRateThrottle),
        "nothing": throttled(TidegateThrottle),
    }
    get = serve(views, limiter=limiter, rest=rest)
    assert statuses(get, "contacts") == [200, 200, 429]
    assert statuses(get, "uploads", 2) == [200, 429]
    assert statuses(get, "none") == statuses(get, "off") == [200] * 3
    assert [get("burst", headers={"X-Who": who}).status for who in ("a", "b", "a")] == [200, 200, 429]
    clients = ("9.9.9.9, 198.51.100.1", "198.51.100.2", "8.8.8.8, 198.51.100.1")
    for route in ("anon", "by-key"):
        assert [get(route, headers={"X-Forwarded-For": one}).status for one in clients] == [200, 200, 429]
    for route in ("unknown", "forgotten"):
        with pytest.raises(ConfigError, match="No default throttle rate set for"):
            get(route)
    with pytest.raises(ConfigError, match="limits nothing"):
        get("nothing")


def test_a_throttle_beside_others_and_with_follow_up(serve: Any) -> None:
    class Held(TidegateThrottle):
        policy = "concurrency 1"

    class Never(BaseThrottle):
        def allow_request(self, request: Any, view: Any) -> bool:
            return "X-Never" not in request.headers

    limiter = Limiter()
    view = api_view(["GET"])(throttle_classes([Held, Never])(answer))
    get = serve({"": view}, limiter=limiter)
    assert statuses(get, "", 3) == [200] * 3
    seen = get("", headers={"X-Never": "1"})
    assert seen.status == 429 and b"detail" in seen.body
    assert statuses(get, "", 2) == [200] * 2
    get = serve({"": view}, limiter=limiter, middleware=[])
    with pytest.raises(ConfigError, match="MIDDLEWARE"):
        get("")


def test_a_disabled_project_limits_nothing(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Once(TidegateThrottle):
        policy = "1/minute"

    @limit("1/minute")
    class Whole(APIView):
        throttle_classes = [Once]  # noqa: RUF012
        get = answer

    for middleware in ([], ["tidegate.django.TidegateMiddleware"]):
        get = serve({"": Whole.as_view()}, enabled=False, middleware=middleware)
        assert statuses(get, "") == [200] * 3
    monkeypatch.setenv("TIDEGATE_ENABLED", "no")
    assert statuses(serve({"": Whole.as_view()}), "") == [200] * 3
    monkeypatch.delenv("TIDEGATE_ENABLED")
    assert statuses(serve({"": Whole.as_view()}), "") == [200, 429, 429]


def test_a_limit_before_the_renderer_is_known(serve: Any) -> None:
    class Early(APIView):
        get = answer

        @limit("1/minute")
        def initial(self, request: Any, *args: Any, **kwargs: Any) -> None:
            super().initial(request, *args, **kwargs)

    get = serve({"": Early.as_view()})
    assert statuses(get, "") == [200, 429, 429]
    assert json.loads(get("").body)["violated-policies"] == ["1/minute"]


class PerUser(TidegateThrottle):
    policy = "user"


class PerMinute(TidegateThrottle):
    policy = "minute"


class Sometimes(TidegateThrottle):
    policy = "some"

    def allow_request(self, request: Any, view: Any) -> bool:
        return "X-Free" in request.headers or super().allow_request(request, view)


@pytest.mark.parametrize("middleware", [None, []], ids=["middleware", "none"])
@pytest.mark.parametrize("classes", [[PerUser, PerMinute, Sometimes], [Sometimes, PerMinute, PerUser]])
def test_throttles_of_one_view_are_all_charged_or_none_is(serve: Any, middleware: Any, classes: Any) -> None:
    limiter = Limiter(policies={"user": "fixed-window 9/hour", "minute": "2/minute", "some": "9/day"})
    view = api_view(["GET"])(throttle_classes(classes)(lambda request: Response({})))
    get = serve({"": view}, limiter=limiter, middleware=middleware)
    assert [get("").status for _ in range(5)] == [200, 200, 429, 429, 429]
    used = {name: 9 - limiter.peek(name, "203.0.113.9").remaining for name in ("user", "some")}
    assert used == {"user": 2, "some": 2}
    # A class with its own `allow_request` is asked in its turn.
    limiter.clear("minute", "203.0.113.9")
    assert get("", headers={"X-Free": "yes"}).status == 200
    used = {name: 9 - limiter.peek(name, "203.0.113.9").remaining for name in ("user", "some")}
    assert used == {"user": 3, "some": 2}


@pytest.mark.parametrize(
    ("classes", "refused"),
    [
        ([PerUser, PerMinute, Sometimes], ["user", "minute"]),
        ([PerMinute, PerUser], ["minute", "user"]),
        ([Sometimes, PerMinute, PerUser], ["some"]),
    ],
)
def test_of_several_refusals_all_fields_speak_of_one(serve: Any, classes: Any, refused: Any) -> None:
    limiter = Limiter(
        policies={"user": "fixed-window 1/hour", "minute": "fixed-window 1/minute", "some": "fixed-window 1/day"}
    )
    view = api_view(["GET"])(throttle_classes(classes)(lambda request: Response({})))
    get = serve({"": view}, limiter=limiter)
    assert get("").status == 200
    seen = get("")
    problem = json.loads(seen.body)
    # The problem names only policies that were asked together with the first one that denies.
    assert problem["violated-policies"] == refused
    waits = [limiter.peek(name, "203.0.113.9").retry_after or 0 for name in problem["violated-policies"]]
    assert abs(int(seen["Retry-After"]) - max(waits)) < 5, (seen["Retry-After"], problem)


def test_policies_that_are_made_for_each_request_are_known_by_what_they_say(serve: Any) -> None:
    given: list[Any] = []

    class Dynamic(TidegateThrottle):
        def get_policy(self, request: Any, view: Any) -> Any:
            return given.pop()

    get = serve({"": api_view(["GET"])(throttle_classes([Dynamic])(lambda request: Response({})))}, middleware=[])

    def served(*policies: Any) -> list[int]:
        given[:] = reversed(policies)
        return statuses(get, "", len(policies))

    assert served(*(Policy("2/minute") for _ in range(4))) == [200, 200, 429, 429]
    assert served(*(["3/minute", Policy("100/hour")] for _ in range(4))) == [200, 200, 200, 429]
    whole = fixed("all")
    assert served(*([("4/minute", whole, 2)] for _ in range(3))) == [200, 200, 429]
    assert len(standalone_layer().throttle_limits) == 3
    # Other limits are another policy, even if its object took the place of the first one in memory.
    assert served(Policy("2/minute"), Policy("9/hour"), Policy("2/minute"), Policy("9/hour")) == [429, 200, 429, 200]
    # A function that is made for each request makes as many policies as requests.
    assert served(*([("5/minute", lambda request: "k")] for _ in range(7))) == [200] * 5 + [429] * 2
    more = MAX_POLICIES + 1
    assert set(served(*(f"{count}/minute" for count in range(10, 10 + more)))) == {200}
    assert len(standalone_layer().throttle_limits) <= MAX_POLICIES
    with pytest.raises(ConfigError, match="a policy must be a name, a notation, a Policy or"):
        served([{"limits": "5/minute"}])
