"""Django REST framework: views, viewsets, actions and throttle classes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegate import ConfigError
from web_django import django_settings, statuses
from web_rest_framework import TokenAuthentication, answer

settings = django_settings()

from django.http import HttpResponse  # noqa: E402
from django.utils.decorators import method_decorator  # noqa: E402
from django.views.decorators.csrf import csrf_exempt  # noqa: E402
from rest_framework import viewsets  # noqa: E402
from rest_framework.authentication import SessionAuthentication  # noqa: E402
from rest_framework.decorators import action, api_view, authentication_classes  # noqa: E402
from rest_framework.response import Response  # noqa: E402
from rest_framework.views import APIView  # noqa: E402

from tidegate.django import client_ip, exempt, limit, user  # noqa: E402


def test_function_views_above_and_below_api_view(serve: Any) -> None:
    @api_view(["GET"])
    @limit("2/minute")
    def below(request: Any) -> Response:
        assert request.rate_limit.limit == 2
        return Response({"left": request.rate_limit.remaining})

    @limit("2/minute")
    @api_view(["GET"])
    def above(request: Any) -> Response:
        return Response({"left": request.rate_limit.remaining})

    get = serve({"below": below, "above": above})
    for route in ("below", "above"):
        seen = get(route)
        assert json.loads(seen.body) == {"left": 1} and seen["X-RateLimit-Remaining"] == "1"
        assert statuses(get, route, 2) == [200, 429], route


def test_two_function_views_have_budgets_of_their_own(serve: Any) -> None:
    def make(name: str) -> Any:
        def view(request: Any) -> Response:
            return Response({})

        view.__name__ = view.__qualname__ = name
        return limit("1/minute")(api_view(["GET"])(view))

    get = serve({"a": make("a"), "b": make("b")})
    assert [get("a").status, get("b").status, get("a").status] == [200, 200, 429]
    get = serve(
        {"c": api_view(["GET"])(answer), "d": api_view(["GET"])(lambda request: Response({}))}, default="1/minute"
    )
    assert [get("c").status, get("d").status, get("c").status] == [200, 200, 429]


def test_classes_methods_and_method_decorator(serve: Any) -> None:
    @limit("1/minute")
    class Whole(APIView):
        get = answer

    class One(APIView):
        @limit("1/minute")
        def get(self, request: Any) -> Response:
            return Response({})

        def post(self, request: Any) -> Response:
            return Response({})

    class Decorated(APIView):
        @method_decorator(limit("1/minute"))
        def get(self, request: Any) -> Response:
            return Response({})

    @method_decorator(limit("1/minute"), name="dispatch")
    class Dispatched(APIView):
        get = answer

    class Plain(APIView):
        get = answer

    get = serve({
        "whole": Whole.as_view(),
        "one": One.as_view(),
        "decorated": Decorated.as_view(),
        "dispatched": Dispatched.as_view(),
        "outside": limit("1/minute")(Plain.as_view()),
    })  # fmt: skip
    for route in ("whole", "one", "decorated", "dispatched", "outside"):
        assert statuses(get, route) == [200, 429, 429], route
    assert statuses(get, "one", method="POST") == [200] * 3


def test_viewsets_and_actions(serve: Any) -> None:
    class Things(viewsets.ViewSet):
        @limit("1/minute")
        def list(self, request: Any) -> Response:
            return Response([])

        @limit("2/minute")
        @action(detail=False)
        def above(self, request: Any) -> Response:
            return Response([])

        @action(detail=False)
        @limit("2/minute")
        def below(self, request: Any) -> Response:
            return Response([])

        @action(detail=False)
        @method_decorator(limit("2/minute"))
        def decorated(self, request: Any) -> Response:
            return Response([])

        def retrieve(self, request: Any, pk: str) -> Response:
            return Response([])

    from rest_framework.routers import SimpleRouter

    router = SimpleRouter()
    router.register("things", Things, basename="thing")
    get = serve({}, more_urls=router.urls)
    assert statuses(get, "things/") == [200, 429, 429]
    for route in ("above", "below", "decorated"):
        assert statuses(get, f"things/{route}/") == [200, 200, 429], route
    assert statuses(get, "things/7/") == [200] * 3


def test_what_hides_a_limit_hides_nothing(serve: Any) -> None:
    def hides(view: Any) -> Any:
        return lambda request: view(request)

    get = serve({
        "below": api_view(["GET"])(hides(limit("1/minute")(answer))),
        "free": api_view(["GET"])(exempt(lambda request: Response({}))),
    }, default="2/minute")  # fmt: skip
    assert statuses(get, "below") == [200, 429, 429]
    assert statuses(get, "free", 4) == [200] * 4


def test_users_that_the_view_authenticates(serve: Any) -> None:
    @api_view(["GET"])
    @authentication_classes([TokenAuthentication])
    @limit("1/minute", key=user())
    def below(request: Any) -> Response:
        return Response({})

    @limit("1/minute", key=user())
    class Whole(APIView):
        authentication_classes = [TokenAuthentication]  # noqa: RUF012
        get = answer

    @method_decorator(limit("1/minute", key=user()), name="dispatch")
    class Dispatched(APIView):
        authentication_classes = [TokenAuthentication]  # noqa: RUF012
        get = answer

    get = serve({"below": below, "whole": Whole.as_view(), "dispatched": Dispatched.as_view()})
    for route in ("below", "whole", "dispatched"):
        for token in ("a", "b"):
            assert statuses(get, route, headers={"X-Token": token}) == [200, 429, 429], (route, token)


def test_a_limit_outside_of_authentication_cannot_read_the_user(serve: Any) -> None:
    class Tokens(APIView):
        authentication_classes = [TokenAuthentication]  # noqa: RUF012
        get = answer

    class Sessions(APIView):
        authentication_classes = [SessionAuthentication]  # noqa: RUF012
        get = answer

    views = {
        "tokens": limit("1/minute", key=user())(Tokens.as_view()),
        "chosen": limit("1/minute", key=user(otherwise=client_ip()))(Tokens.as_view()),
        "default": Tokens.as_view(),
        "sessions": limit("1/minute", key=user())(Sessions.as_view()),
    }
    authentication = "django.contrib.auth.middleware.AuthenticationMiddleware"
    sessions = "django.contrib.sessions.middleware.SessionMiddleware"
    get = serve(
        views,
        default="5/minute",
        key=user(),
        middleware=[sessions, authentication, "tidegate.django.TidegateMiddleware"],
        settings={"SESSION_ENGINE": "django.contrib.sessions.backends.signed_cookies"},
    )
    for route in ("tokens", "default"):
        with pytest.raises(ConfigError, match=r"user\(\).*below @api_view.*throttle class"):
            get(route)
    assert statuses(get, "chosen") == [200, 429, 429]
    assert statuses(get, "sessions") == [200, 429, 429]


def test_a_view_that_leaves_out_its_throttles_is_an_error(serve: Any) -> None:
    @limit("1/minute")
    class Careless(APIView):
        get = answer

        def initial(self, request: Any, *args: Any, **kwargs: Any) -> None:
            request.accepted_renderer, request.accepted_media_type = self.get_renderers()[0], "application/json"

    with pytest.raises(ConfigError, match=r"Careless.*super\(\)\.initial"):
        serve({"": Careless.as_view()})("")


def test_on_denied_answers(serve: Any) -> None:
    def slow_down(request: Any, decision: Any) -> Response:
        return Response({"slow": decision.policy}, status=418)

    @limit("1/minute", on_denied=slow_down)
    class Whole(APIView):
        get = answer

    get = serve({"below": api_view(["GET"])(limit("1/minute", on_denied=slow_down)(answer)), "whole": Whole.as_view()})
    for route in ("below", "whole"):
        assert get(route).status == 200
        seen = get(route)
        assert (seen.status, json.loads(seen.body)) == (418, {"slow": "1/minute"}), route
        assert seen["Retry-After"]


def test_what_on_denied_returns_without_a_status_is_a_refusal(serve: Any) -> None:
    for given, status in ((lambda: Response({"slow": 1}), 429), (lambda: Response({"slow": 1}, status=200), 200)):
        limited = limit("0/minute", on_denied=lambda request, decision, given=given: given())
        get = serve({"below": api_view(["GET"])(limited(answer)), "above": limited(api_view(["GET"])(answer))})
        below = get("below")
        assert (below.status, json.loads(below.body)) == (status, {"slow": 1})


def test_other_decorators_of_django_around(serve: Any) -> None:
    get = serve({"": csrf_exempt(api_view(["GET"])(limit("1/minute")(lambda request: HttpResponse("x"))))})
    assert statuses(get, "") == [200, 429, 429]
