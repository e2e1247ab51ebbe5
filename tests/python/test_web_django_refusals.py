"""The way of a refusal through Django, and the switches that turn limits off."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from tidegate import ConfigError
from web_django import django_settings, statuses
from web_django_views import GONE, OURS, hides, new_view

settings = django_settings()

from django.core.signals import got_request_exception, request_finished, request_started  # noqa: E402
from django.http import HttpResponse  # noqa: E402
from django.test import override_settings  # noqa: E402
from django.views import View  # noqa: E402

from tidegate.django import RequestDenied, RequestUnchecked, limit  # noqa: E402


def middleware(name: str, kind: Any) -> str:
    module = types.ModuleType("middleware_of_a_test")
    setattr(module, name, kind)
    sys.modules[module.__name__] = module
    return f"{module.__name__}.{name}"


class Corsheaders:
    """Adds a header to every response, as django-cors-headers does."""

    sync_capable, async_capable = True, False

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        response = self.get_response(request)
        response["Access-Control-Allow-Origin"] = "*"
        return response


def test_unknown_paths_are_charged_to_the_application_only(serve: Any, asynchronous: bool) -> None:
    get = serve({"": new_view(asynchronous)}, asynchronous, default="1/minute", application="4/minute")
    assert statuses(get, "nothing", 2) == [404, 404]
    assert [get("").status, get("").status] == [200, 429]
    assert statuses(get, "nothing", 3) == [404, 429, 429], "what is denied is not charged"
    assert serve({"": new_view()}, asynchronous, default="1/minute", **GONE)("nothing").status == 404
    assert serve({"": new_view()}, asynchronous, application="1/s", **GONE)("nothing").status == 503


def views_that_refuse(asynchronous: bool, **options: Any) -> dict[str, Any]:
    @limit("1/minute", **options)
    class Whole(View):
        def get(self, request: Any) -> HttpResponse:
            return HttpResponse("get")

    return {
        "view": limit("1/minute", **options)(new_view(asynchronous)),
        "hidden": hides(limit("1/minute", **options)(new_view(asynchronous))),
        "class": Whole.as_view(),
        "default": new_view(asynchronous),
    }


def test_a_refusal_goes_through_middleware(serve: Any, asynchronous: bool) -> None:
    cors = middleware("Corsheaders", Corsheaders)
    signals: list[str] = []

    def exceptional(**_: Any) -> None:
        signals.append("exception")

    got_request_exception.connect(exceptional)
    try:
        for options in ({}, GONE):
            get = serve(
                views_that_refuse(asynchronous), asynchronous, middleware=[cors, OURS], default="1/minute", **options
            )
            for route in views_that_refuse(asynchronous):
                get(route)
                seen = get(route)
                assert seen.status == (503 if options else 429), route
                assert seen["Access-Control-Allow-Origin"] == "*", route
                assert seen["Content-Type"] == "application/problem+json" and seen["Retry-After"]
    finally:
        got_request_exception.disconnect(exceptional)
    assert signals == []


def test_signals_of_a_refused_request(serve: Any) -> None:
    signals: list[str] = []

    def started(**_: Any) -> None:
        signals.append("started")

    def finished(**_: Any) -> None:
        signals.append("finished")

    request_started.connect(started)
    request_finished.connect(finished)
    try:
        assert statuses(serve({"": limit("1/minute")(new_view())}), "", 2) == [200, 429]
    finally:
        request_started.disconnect(started)
        request_finished.disconnect(finished)
    assert signals.count("started") == 2


def test_handlers_of_the_project(serve: Any, asynchronous: bool) -> None:
    def too_many(request: Any, exception: Any) -> HttpResponse:
        return HttpResponse(f"{type(exception).__name__} {exception.decision.policy}", status=429)

    def unavailable(request: Any, exception: Any) -> HttpResponse:
        return HttpResponse(f"{type(exception).__name__} {exception.code}", status=503)

    handlers = {"handler429": too_many, "handler503": unavailable}
    for options, says in (({}, b"RequestDenied 1/minute"), (GONE, b"RequestUnchecked store_unavailable")):
        views = views_that_refuse(asynchronous)
        get = serve(views, asynchronous, handlers=handlers, default="1/minute", **options)
        for route in views:
            get(route)
            seen = get(route)
            assert (seen.status, seen.body) == (503 if options else 429, says), route
            if not options:
                assert seen["Retry-After"] and "RateLimit" in seen


def test_a_status_that_a_project_gives_stays(serve: Any, asynchronous: bool) -> None:
    def explicit(request: Any, decision: Any) -> HttpResponse:
        return HttpResponse("slow down", status=200)

    def without_status(request: Any, exception: Any) -> HttpResponse:
        return HttpResponse("slow down")

    for options, handlers, status in (
        ({"on_denied": explicit}, {}, 200),
        ({}, {"handler429": explicit_handler}, 200),
        ({}, {"handler429": without_status}, 429),
        (GONE, {"handler503": without_status}, 503),
    ):
        views = views_that_refuse(asynchronous, **({} if options is GONE else options))
        get = serve(views, asynchronous, handlers=handlers, default="1/minute", **options)
        for route in views:
            get(route)
            seen = get(route)
            assert (seen.status, seen.body) == (status, b"slow down"), route


def explicit_handler(request: Any, exception: Any) -> HttpResponse:
    return HttpResponse("slow down", status=200)


def test_on_denied_in_the_settings(serve: Any, asynchronous: bool) -> None:
    module = types.ModuleType("denials_of_a_test")
    module.denied = lambda request, decision: HttpResponse("slow down", status=418)  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    get = serve(views_that_refuse(asynchronous), asynchronous, default="1/minute", on_denied="denials_of_a_test.denied")
    for route in views_that_refuse(asynchronous):
        get(route)
        seen = get(route)
        assert (seen.status, seen.body) == (418, b"slow down"), route
        assert seen["Retry-After"]
    for wrong in ("denials_of_a_test.nothing", "no.such.module"):
        with pytest.raises(ConfigError, match="TIDEGATE\\['on_denied'\\] must be a function or its dotted path"):
            serve({"": new_view()}, on_denied=wrong)("")


def test_process_exception_of_another_middleware_may_answer(serve: Any, asynchronous: bool) -> None:
    class Answers(Corsheaders):
        def process_exception(self, request: Any, exception: Exception) -> HttpResponse | None:
            if isinstance(exception, (RequestDenied, RequestUnchecked)):
                return HttpResponse(type(exception).__name__, status=429)
            return None

    answers = middleware("Answers", Answers)
    views = {"": hides(limit("1/minute")(new_view(asynchronous)))}
    get = serve(views, asynchronous, middleware=[OURS, answers])
    assert get("").status == 200
    assert get("").body == b"RequestDenied"
    get = serve(views, asynchronous, middleware=[OURS, answers], **GONE)
    assert get("").body == b"RequestUnchecked"


def test_disabled(serve: Any, asynchronous: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    views = views_that_refuse(asynchronous)
    for enabled in (False, "off", 0):
        get = serve(views, asynchronous, default="1/minute", enabled=enabled, **GONE)
        assert [statuses(get, route, 2) for route in views] == [[200, 200]] * len(views)
    monkeypatch.setenv("TIDEGATE_ENABLED", "false")
    get = serve(views, asynchronous, default="1/minute", **GONE)
    assert [statuses(get, route, 2) for route in views] == [[200, 200]] * len(views)
    # The settings take precedence over the environment.
    get = serve(views, asynchronous, default="1/minute", enabled=True)
    assert [statuses(get, route, 2) for route in views] == [[200, 429]] * len(views)
    with pytest.raises(ConfigError, match="TIDEGATE\\['enabled'\\]"):
        serve(views, asynchronous, enabled="maybe")("view")
    with pytest.raises(ConfigError, match="dict"), override_settings(TIDEGATE="redis://"):
        serve(views)
        from tidegate.django.layer import settings_options

        with override_settings(TIDEGATE=7):
            settings_options()


def test_an_async_on_denied(serve: Any, asynchronous: bool) -> None:
    async def slow_down(request: Any, decision: Any) -> HttpResponse:
        return HttpResponse("slow down", status=418)

    views = views_that_refuse(asynchronous, on_denied=slow_down)
    get = serve(views, asynchronous, default="1/minute", on_denied=slow_down)
    for route in views:
        assert statuses(get, route, 2) == [200, 418], route


def test_a_setting_that_does_not_exist_is_an_error(serve: Any) -> None:
    with pytest.raises(TypeError, match=r"the setting TIDEGATE has no option 'defualt': did you mean 'default'"):
        serve({"": new_view()}, defualt="1/minute")("")
