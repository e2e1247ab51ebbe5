"""What a request carries of its limits."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from ..web.admission import Admission
from ..web.bound_limit import BoundLimit
from .layer import DjangoLayer, ViewLimit

# The attribute in which a request carries its RequestLimits.
NAME = "_tidegate"


class RequestLimits:
    """The limits of one request: what was checked, and what was admitted."""

    __slots__ = ("admissions", "checked", "layer", "pending", "route", "shared")

    def __init__(self, layer: DjangoLayer) -> None:
        self.layer = layer
        self.admissions: list[Admission] = []
        # The limits of decorators that were checked: each is, once for a request.
        self.checked: set[ViewLimit | None] = set()
        # The limits of the application, until they are checked with those of the view.
        self.pending: tuple[BoundLimit, ...] = layer.application
        # The view and the method of the request; set when there is a view.
        self.route: Any = None
        # The admission of `default`, which a limit of the view replaces.
        self.shared: Admission | None = None

    def add(self, request: HttpRequest, admission: Admission) -> None:
        """The request has this admission as well."""
        self.admissions.append(admission)
        request.rate_limit = admission.decision

    def release(self) -> None:
        """Gives back the holds of a request that has no response."""
        for admission in self.admissions:
            admission.release()


def limits_of(request: HttpRequest) -> RequestLimits | None:
    """The limits of a request; None when the middleware has not seen it."""
    found: RequestLimits | None = getattr(request, NAME, None)
    return found
