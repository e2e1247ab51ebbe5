"""Django in one file: the middleware, a default from the settings, limits on views.

Needs: pip install "tidegate[django]". Runs with:

    TIDEGATE_STORE=redis://127.0.0.1:6379/0 python examples/python_django.py runserver
"""

import os
import sys

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

from tidegate.django import client_ip, exempt, header, limit

settings.configure(
    DEBUG=True,
    ALLOWED_HOSTS=["*"],
    SECRET_KEY="not a secret",
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["tidegate.django.TidegateMiddleware"],
    TIDEGATE={
        "store": os.environ.get("TIDEGATE_STORE", "memory://"),
        "policies": {"login": "20/minute; 5/3s", "search": "gcra 10/s burst 20", "address": "gcra 50/s burst 100"},
        "default": "100/minute",
    },
)


@limit("login")
def login(request: HttpRequest) -> HttpResponse:
    return HttpResponse("welcome\n")


# By API key, and by address, because a client may make up another key for each request.
@limit([("search", header("X-API-Key")), ("address", client_ip())])
async def search(request: HttpRequest) -> HttpResponse:
    return HttpResponse("found\n")


@exempt
def health(request: HttpRequest) -> HttpResponse:
    return HttpResponse("fine\n")


def index(request: HttpRequest) -> HttpResponse:
    return HttpResponse("under the default\n")


urlpatterns = [path("", index), path("login", login), path("search", search), path("health", health)]
application = get_wsgi_application()

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
