"""Whose request it is: what a framework tells of a request, and the keys that are made of it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

from .._tidegate import ClientIp, anonymous, hashed
from ..errors import KeyInvalid
from .functions import adapted

log = logging.getLogger("tidegate.http")

Request: TypeAlias = Any
Read: TypeAlias = Callable[[Request], Any]


class Face(Protocol):
    """How a framework's requests are read."""

    def peer(self, request: Request) -> str | None:
        """The address at the other end of the connection; None or "" when it has none."""

    def header(self, request: Request, name: str) -> str | None:
        """A header's value."""

    def forwarded(self, request: Request) -> list[bytes]:
        """The lines of X-Forwarded-For, in the order in which they came."""

    def user(self, request: Request) -> object:
        """Whom the framework has authenticated: None, or a user of whatever class."""

    def claims(self, request: Request) -> Mapping[str, Any] | None:
        """The claims of a token that the application has verified, where it left them."""


class Key:
    """Says whose request it is, in any framework."""

    def __init__(
        self, name: str, bind: Callable[[Face], Read], *, plain: bool = False, ip: ClientIp | None = None
    ) -> None:
        self._name = name
        self.bind = bind
        # Whether it only reads what a Face reads, at once: then there is a short way.
        self.plain = plain
        # What makes the key of the peer's address, when that is all it takes.
        self.ip = ip

    def __repr__(self) -> str:
        return self._name


def client_ip(*, trusted_proxies: Iterable[object] = (), ipv6_prefix: int = 64) -> Key:
    """The client's address, the key when nothing is said.

    `trusted_proxies` are addresses, networks ("10.0.0.0/8"), or the words "loopback", "linklocal", "uniquelocal" and
    "unix": X-Forwarded-For counts only through these. IPv6 addresses that share their first `ipv6_prefix` bits are one
    client.
    """
    ip = ClientIp(trusted_proxies, ipv6_prefix)

    def bind(face: Face) -> Read:
        key, peer, forwarded = ip.key, face.peer, face.forwarded
        if ip.reads_forwarded:
            return lambda request: key(peer(request), forwarded(request))

        def direct(request: Request) -> str:
            client = key(peer(request))
            if client == "unix":
                _warn_of_unix()
            return client

        return direct

    return Key("client_ip()", bind, plain=True, ip=None if ip.reads_forwarded else ip)


@functools.cache
def _warn_of_unix() -> None:
    log.warning(
        "requests come through a Unix domain socket, so all clients are one: their key is 'unix'. If a proxy of yours "
        "is at the other end, trust what it says: key=client_ip(trusted_proxies=['unix'])"
    )


def _or_anonymous(name: str, otherwise: Key | None, read: Callable[[Face], Read], *, plain: bool = True) -> Key:
    """A key that a request may lack; without it, it is known by its address."""
    fallback = otherwise or client_ip()

    def bind(face: Face) -> Read:
        known, unknown = read(face), fallback.bind(face)
        mark: Callable[[str], str] = (lambda key: key) if otherwise else anonymous

        def key(request: Request) -> str:
            found: str | None = known(request)
            return mark(unknown(request)) if found is None else found

        return key

    return Key(name, bind, plain=plain and fallback.plain)


def header(name: str, *, otherwise: Key | None = None) -> Key:
    """The value of a header such as an API key, hashed before it is stored.

    A request without it is known by its address, or by the key `otherwise`.
    """

    def read(face: Face) -> Read:
        def value(request: Request) -> str | None:
            found = face.header(request, name)
            return hashed(found) if found else None

        return value

    return _or_anonymous(f"header({name!r})", otherwise, read)


def user(*, otherwise: Key | None = None) -> Key:
    """Whom the framework has authenticated; one who is not is known by the address, or by the key `otherwise`."""

    def read(face: Face) -> Read:
        return lambda request: _identity(face.user(request))

    return _or_anonymous("user()", otherwise, read)


def claim(
    name: str, *, of: Callable[[Request], Mapping[str, Any] | None] | None = None, otherwise: Key | None = None
) -> Key:
    """A claim of a token that the application has verified, "sub" say.

    `of` is a function of the request that returns the verified claims; without it they are where the framework's
    file says.
    """

    def read(face: Face) -> Read:
        claims = adapted(of, 1, "of") if of is not None else face.claims

        def value(request: Request) -> str | None:
            found = claims(request)
            held = None if found is None else found.get(name)
            return None if held is None else str(held)

        return value

    return _or_anonymous(f"claim({name!r})", otherwise, read, plain=of is None)


def _identity(who: Any) -> str | None:
    """What tells one user from another, whatever class they are of."""
    if who is None or getattr(who, "is_authenticated", True) is False:
        return None
    if isinstance(who, (str, int)):
        return str(who) or None
    for name in ("pk", "id", "identity", "username", "display_name"):
        try:
            found = getattr(who, name, None)
        except NotImplementedError:
            continue
        if found is not None and not callable(found):
            return str(found)
    if callable(get_id := getattr(who, "get_id", None)):
        found = get_id()
        return None if found is None else str(found)
    raise KeyInvalid(f"user() cannot tell who {type(who).__name__} is: give a key function that can")
