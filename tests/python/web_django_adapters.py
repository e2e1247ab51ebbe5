"""The adapters of Django and of Django REST framework."""

from __future__ import annotations

from typing import Any

from web import call_asgi, call_wsgi
from web_adapter import Adapter, LimitedApp, View, astream, layer_options, numbers, run, simple, stream
from web_django import django_asgi, django_settings


class DjangoAdapter(Adapter):
    name = "django"
    asynchronous = False

    def header(self, request: Any, name: str) -> str | None:
        return request.headers.get(name)

    def denial(self) -> Any:
        from django.http import HttpResponse

        return HttpResponse("slow down", status=418)

    def plain_denial(self) -> Any:
        from django.http import HttpResponse

        return HttpResponse("slow down")

    def make(self, policy: Any, view: View = simple, **options: Any) -> LimitedApp:
        import sys
        import types

        settings = django_settings()
        from django.core.handlers.wsgi import WSGIHandler
        from django.http import HttpResponse, StreamingHttpResponse
        from django.urls import path

        from tidegate.django import limit

        # Django's settings hold for the whole process, so each application replaces them.
        settings.TIDEGATE = layer_options(options)

        def answer(request: Any) -> Any:
            status, body = run(view, getattr(request, "rate_limit", None))
            if isinstance(body, list):
                return StreamingHttpResponse(astream(body) if self.asynchronous else stream(body), status=status)
            return HttpResponse(body, status=status)

        async def later(request: Any) -> Any:
            return answer(request)

        def now(request: Any) -> Any:
            return answer(request)

        urls = types.ModuleType(f"urls{next(numbers)}")
        made = self.limited(limit(policy, **options), later if self.asynchronous else now)
        urls.urlpatterns = [path("", made)]  # type: ignore[attr-defined]
        sys.modules[urls.__name__] = urls
        settings.ROOT_URLCONF = urls.__name__
        from django.urls import clear_url_caches

        clear_url_caches()
        if self.asynchronous:
            return LimitedApp(django_asgi(), call_asgi)
        return LimitedApp(WSGIHandler(), call_wsgi)

    def limited(self, decorate: Any, view: Any) -> Any:
        """Returns the view with its limit."""
        return decorate(view)


class DjangoAsyncAdapter(DjangoAdapter):
    name = "django, async views"
    asynchronous = True
    awaits = True


class DjangoHiddenAdapter(DjangoAdapter):
    name = "django, below a decorator without functools.wraps"

    def limited(self, decorate: Any, view: Any) -> Any:
        limited = decorate(view)
        return lambda request: limited(request)


class RestFrameworkAdapter(DjangoAdapter):
    name = "rest framework, below api_view"

    def limited(self, decorate: Any, view: Any) -> Any:
        from rest_framework.decorators import api_view

        return api_view(["GET", "POST"])(decorate(view))


class RestFrameworkOutsideAdapter(DjangoAdapter):
    name = "rest framework, above api_view"

    def limited(self, decorate: Any, view: Any) -> Any:
        from rest_framework.decorators import api_view

        return decorate(api_view(["GET", "POST"])(view))


class RestFrameworkActionAdapter(DjangoAdapter):
    name = "rest framework, action of a viewset"

    def limited(self, decorate: Any, view: Any) -> Any:
        from rest_framework.decorators import action
        from rest_framework.viewsets import ViewSet

        class Things(ViewSet):
            @action(detail=False, methods=["get", "post"])
            @decorate
            def act(self, request: Any) -> Any:
                return view(request)

        return Things.as_view({"get": "act", "post": "act"})


class RestFrameworkClassAdapter(DjangoAdapter):
    name = "rest framework, class"

    def limited(self, decorate: Any, view: Any) -> Any:
        from rest_framework.views import APIView

        class Whole(APIView):
            def get(self, request: Any) -> Any:
                return view(request)

            post = get

        return decorate(Whole).as_view()


DJANGO_ADAPTERS: list[Adapter] = [
    DjangoAdapter(),
    DjangoAsyncAdapter(),
    DjangoHiddenAdapter(),
    RestFrameworkAdapter(),
    RestFrameworkOutsideAdapter(),
    RestFrameworkActionAdapter(),
    RestFrameworkClassAdapter(),
]
