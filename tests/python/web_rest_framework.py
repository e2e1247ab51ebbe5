"""Users and a view for tests of limits in Django REST framework."""

from __future__ import annotations

from typing import Any

from web_django import django_settings

django_settings()

from rest_framework.authentication import BaseAuthentication  # noqa: E402
from rest_framework.response import Response  # noqa: E402


class Account:
    is_authenticated = True

    def __init__(self, pk: str) -> None:
        self.pk = pk


class TokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Any) -> Any:
        token = request.headers.get("X-Token")
        return (Account(token), {"sub": f"sub-{token}"}) if token else None


def answer(request: Any, *_: Any, **__: Any) -> Response:
    return Response({"ok": True})
