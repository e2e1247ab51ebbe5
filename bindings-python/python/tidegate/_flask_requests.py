"""Reads the requests of Flask."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import flask

from .web.environ import EnvironAdapter
from .web.keys import UNAUTHENTICATED


class FlaskAdapter(EnvironAdapter):
    """Says what a request of Flask is, and who made it."""

    authentication = (
        "set g.user and g.claims in a before_request function (None for a visitor), or use Flask-Login. "
        "The decorators of a view run after its limits, which is too late"
    )

    def environ(self, request: flask.Request) -> Mapping[str, Any]:
        return request.environ

    def user(self, request: flask.Request) -> object:
        login = sys.modules.get("flask_login")
        if login is not None and hasattr(flask.current_app, "login_manager"):
            current: object = login.current_user
            return current
        return flask.g.get("user", UNAUTHENTICATED)

    def claims(self, request: flask.Request) -> Mapping[str, Any] | None:
        claims: Mapping[str, Any] | None = flask.g.get("claims", UNAUTHENTICATED)
        return claims
