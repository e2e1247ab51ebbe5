"""The particulars of Django: class views, decorators of decorators, settings, and wrong use."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from tidegate import ConfigError, Limiter
from web import SeenResponse, call_asgi, call_wsgi
from web_django import django_asgi, django_settings

settings = django_settings()

from django.core.handlers.wsgi import WSGIHandler  # noqa: E402
from django.http import HttpRequest, HttpResponse  # noqa: E402
from django.test import override_settings  # noqa: E402
from django.urls import clear_url_caches, path  # noqa: E402
from django.utils.decorators import method_decorator  # noqa: E402
from django.views import View  # noqa: E402
from django.views.decorators.http import require_GET  # noqa: E402

from tidegate.django import claim, exempt, fixed, limit, user  # noqa: E402


@pytest.fixture
def serve() -> Iterator[Any]:
    """Serves views by path, with these TIDEGATE settings."""
    changed: list[Any] = []

    def serving(views: dict[str, Any], asynchronous: bool = False, **more: Any) -> Any:
        urls = types.ModuleType("urls_of_a_test")
        urls.urlpatterns = [path(route, view) for route, view in views.items()]  # type: ignore[attr-defined]
        sys.modules[urls.__name__] = urls
        clear_url_caches()
        middleware = more.pop("middleware", settings.MIDDLEWARE)
        setting = override_settings(ROOT_URLCONF=urls.__name__, TIDEGATE=more, MIDDLEWARE=middleware)
        setting.enable()
        changed.append(setting)
        handler = django_asgi() if asynchronous else WSGIHandler()
        call = call_asgi if asynchronous else call_wsgi

        def get(route: str, method: str = "GET") -> SeenResponse:
            return call(handler, path=f"/{route}", method=method)

        return get

    yield serving
    for setting in reversed(changed):
        setting.disable()
    clear_url_caches()


def view(request: Any) -> HttpResponse:
    return HttpResponse("view")


async def aview(request: Any) -> HttpResponse:
    return HttpResponse("view")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_default_is_for_views_without_a_limit(serve: Any, asynchronous: bool) -> None:
    one = aview if asynchronous else view
    get = serve({"own": limit("1/minute")(one), "plain": one, "free": exempt(one)}, asynchronous, default="2/minute")
    assert [get("own").status for _ in range(2)] == [200, 429]
    assert [get("plain").status for _ in range(3)] == [200, 200, 429]
    assert [get("free").status for _ in range(4)] == [200] * 4


@pytest.mark.parametrize("asynchronous", [False, True])
def test_sync_and_async_views_in_both_handlers(serve: Any, asynchronous: bool) -> None:
    get = serve({"sync": limit("1/minute")(view), "async": limit("1/minute")(aview)}, asynchronous)
    for route in ("sync", "async"):
        assert [get(route).status for _ in range(2)] == [200, 429], route


def test_class_views_in_every_way(serve: Any) -> None:
    @limit("1/minute")
    class Decorated(View):
        def get(self, request: Any) -> HttpResponse:
            return HttpResponse("get")

    @method_decorator(limit("1/minute"), name="dispatch")
    class Dispatched(View):
        def get(self, request: Any) -> HttpResponse:
            return HttpResponse("get")

    class Other(View):
        @method_decorator(limit("1/minute"))
        def get(self, request: Any) -> HttpResponse:
            return HttpResponse("get")

        def post(self, request: Any) -> HttpResponse:
            return HttpResponse("post")

    get = serve(
        {
            "decorated": Decorated.as_view(),
            "dispatched": Dispatched.as_view(),
            "other": Other.as_view(),
            "outside": limit("1/minute")(Other.as_view()),
        }
    )
    for route in ("decorated", "dispatched", "other"):
        assert [get(route).status for _ in range(2)] == [200, 429], route
    assert [get("other", method="POST").status for _ in range(3)] == [200] * 3


def test_other_decorators_above_and_below(serve: Any) -> None:
    def other(request: Any) -> HttpResponse:
        return HttpResponse("other")

    get = serve({"above": limit("1/minute")(require_GET(view)), "below": require_GET(limit("1/minute")(other))})
    for route in ("above", "below"):
        assert [get(route).status for _ in range(2)] == [200, 429], route


def test_settings_are_the_defaults_of_limits(serve: Any) -> None:
    limiter = Limiter(policies={"p": "2/minute", "q": "1/minute"})
    get = serve(
        {"a": limit("p")(view), "b": limit("q", headers="both")(view)},
        limiter=limiter,
        headers="off",
        key=fixed("k"),
    )
    assert "RateLimit" not in get("a")
    assert "RateLimit" in get("b")
    assert limiter.peek("p", "k").remaining == 1


def test_users_and_claims(serve: Any) -> None:
    class User:
        is_authenticated = True
        pk = 7

    class Authenticates:
        sync_capable, async_capable = True, False

        def __init__(self, get_response: Any) -> None:
            self.get_response = get_response

        def __call__(self, request: Any) -> Any:
            request.user, request.claims = User(), {"sub": "bob"}
            return self.get_response(request)

    module = types.ModuleType("authenticates_of_a_test")
    module.Authenticates = Authenticates  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    limiter = Limiter(policies={"p": "1/minute", "q": "1/minute"})
    get = serve(
        {"user": limit("p", key=user())(view), "claim": limit("q", key=claim("sub"))(view)},
        limiter=limiter,
        middleware=["authenticates_of_a_test.Authenticates", "tidegate.django.TidegateMiddleware"],
    )
    assert [get("user").status, get("claim").status] == [200, 200]
    assert limiter.peek("p", "7").remaining == 0
    assert limiter.peek("q", "bob").remaining == 0


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_limit_without_the_middleware_raises(serve: Any, asynchronous: bool) -> None:
    class Whole(View):
        def get(self, request: Any) -> HttpResponse:
            return HttpResponse("get")

    one = aview if asynchronous else view
    get = serve({"": limit("1/minute")(one), "c": limit("1/minute")(Whole).as_view()}, asynchronous, middleware=[])
    for route in ("", "c"):
        with pytest.raises(ConfigError, match="MIDDLEWARE"):
            get(route)


def test_wrong_use_raises(serve: Any) -> None:
    with pytest.raises(ConfigError, match="has no policy"):
        limit(lambda: HttpResponse("view"))
    with pytest.raises(ConfigError, match="it stands where a view belongs"):
        # limit(view) might be a policy by request. The mistake shows when the decorator gets something that is no view.
        limit(view)(HttpRequest())
    with pytest.raises(ConfigError, match="must stand above a view"):
        limit("1/minute")(7)
    with pytest.raises(TypeError):
        limit("1/minute", nonsense=True)
    with pytest.raises(TypeError):
        serve({"": view}, nonsense=True)("")


def named_by(request: Any) -> str:
    return str(request.GET.get("who", "anyone"))


def units(request: Any) -> int:
    return 2


def test_a_dotted_path_in_the_settings_is_imported(serve: Any) -> None:
    limiter = Limiter(policies={"p": "4/minute"})
    get = serve({"": view}, limiter=limiter, default="p", key=f"{__name__}.named_by", cost=f"{__name__}.units")
    assert [get("").status for _ in range(3)] == [200, 200, 429]
    assert limiter.peek("p", "anyone").remaining == 0
    for wrong, says in (("app.nothing", "dotted path"), ("anyone", "fixed"), ("tests.", "dotted path")):
        with pytest.raises(ConfigError, match=says):
            serve({"": view}, default="1/minute", key=wrong)("")
