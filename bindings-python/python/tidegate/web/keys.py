"""Makes keys from requests. The RequestAdapter of a framework reads the requests."""

from __future__ import annotations

import functools
import itertools
import logging
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from .._constants import check_constants
from .._shown import shortened, shown
from .._tidegate import ClientIp, anonymous, hashed, named
from ..errors import ConfigError, KeyInvalid
from .functions import name_of, with_arity

log = logging.getLogger("tidegate.http")

Request: TypeAlias = Any
ReadRequest: TypeAlias = Callable[[Request], Any]

# A token of RFC 9110. No request has a header of another name.
_FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

# A RequestAdapter returns this instead of a user or claims if no authentication has run: not even None was set.
UNAUTHENTICATED: Any = object()


class RequestAdapter(Protocol):
    """Reads the requests of a framework."""

    # For errors: where authentication has to leave the user and the claims, and when.
    authentication: str

    def peer(self, request: Request) -> str | None:
        """Returns the address at the other end of the connection, or None or "" if it has none."""

    def over_unix(self, request: Request) -> bool:
        """True if the server announces that it listens on a Unix domain socket. Only for a request without a peer."""

    def header(self, request: Request, name: str) -> str | None:
        """Returns the value of a header."""

    def forwarded(self, request: Request) -> list[bytes]:
        """Returns the lines of X-Forwarded-For, in the order in which they came."""

    def user(self, request: Request) -> object:
        """Returns the authenticated user, an object of any class. Or it returns None or UNAUTHENTICATED."""

    def claims(self, request: Request) -> Any:
        """Returns the claims of a token that the application has verified, or UNAUTHENTICATED."""


class MissingPeer(KeyInvalid):
    """A request needs the address of its client, and its server does not know it."""


class UnusableKey(KeyInvalid):
    """The client of a request made its key a text that no limiter takes: too long, or with half of a character."""


@dataclass(eq=False, repr=False)
class Key:
    """Makes the key of a request, in any framework."""

    _name: str
    bind: Callable[[RequestAdapter], ReadRequest]
    # True if it calls nothing but the RequestAdapter.
    plain: bool = False
    # Makes the key of the peer's address, if the key depends on nothing else.
    ip: ClientIp | None = None
    # The key that reads addresses: itself, or the key of requests that lack this key. None if it reads no address.
    address: Key | None = None
    # Makes this key with another address for requests that lack this key.
    _within: Callable[[Key], Key] | None = None

    def within(self, address: Key | None) -> Key:
        """Returns this key for a layer that reads addresses in its own way. The way of the key itself comes first."""
        return self if address is None or self._within is None else self._within(address)

    def __repr__(self) -> str:
        return self._name


def client_ip(*, trusted_proxies: Iterable[object] | int = (), ipv6_prefix: int = 64) -> Key:
    """The client's address. This is the default key.

    `trusted_proxies` are addresses, networks ("10.0.0.0/8"), or the words "loopback", "linklocal", "uniquelocal" and
    "unix". X-Forwarded-For counts only through these. Or you give the number of proxies between the clients and this
    server. Then the client is that entry of X-Forwarded-For, counted from the right, or the first if there are fewer. 0
    is the address of the connection itself.

    IPv6 addresses that share their first `ipv6_prefix` bits are one client. An address that carries an IPv4 address
    (NAT64, mapped, translated, compatible, Teredo) is that IPv4 client. A 6to4 address is its /48. An ISATAP address is
    treated as any other.

    All requests through a Unix domain socket have the key "unix". A request is one of these only if the address of the
    server is such a socket. Any other request without a client's address raises KeyInvalid. For example, a connection
    that was reset has no address any more.
    """
    ip = ClientIp(trusted_proxies, ipv6_prefix)

    def bind(adapter: RequestAdapter) -> ReadRequest:
        key, peer, forwarded, reads_forwarded = ip.key, adapter.peer, adapter.forwarded, ip.reads_forwarded

        def key_without_peer(request: Request) -> str:
            unix = adapter.over_unix(request)
            if unix and not reads_forwarded:
                _warn_of_unix()
            try:
                return key(None, forwarded(request), unix)
            except KeyInvalid as error:
                _warn_of_missing_peer(error.message)
                raise MissingPeer(error.message) from None

        def client_key(request: Request) -> str:
            address = peer(request)
            if not address:
                return key_without_peer(request)
            return key(address, forwarded(request)) if reads_forwarded else key(address)

        return client_key

    key = Key("client_ip()", bind, plain=True, ip=None if ip.reads_forwarded else ip)
    key.address = key
    return key


@functools.cache
def _warn_of_unix() -> None:
    log.warning(
        "requests come through a Unix domain socket, so all clients are one: their key is 'unix'. If a proxy of yours "
        "is at the other end, trust what it says: key=client_ip(trusted_proxies=['unix'])"
    )


_missing_peers = itertools.count()


def _warn_of_missing_peer(message: str) -> None:
    """Logs only the first time, because a client may reset as many connections as it likes."""
    if next(_missing_peers) == 0:
        log.warning("a request was refused, and so are all others like it: %s", message)


def with_fallback(
    name: str,
    given: Key | Callable[..., Any] | None,
    read: Callable[[RequestAdapter, Request], str | None],
    *,
    plain: bool = True,
    layer: Key | None = None,
) -> Key:
    """A key that a request may lack. A request without it has the key `given`, or its address as the layer reads it."""
    otherwise = None if given is None else key_option(given, "otherwise").within(layer)
    fallback = otherwise or layer or client_ip()

    def bind(adapter: RequestAdapter) -> ReadRequest:
        read_fallback = fallback.bind(adapter)

        def key(request: Request) -> Any:
            found = read(adapter, request)
            if found is not None:
                return found
            return read_fallback(request) if otherwise else anonymous(read_fallback(request))

        return key

    def within(address: Key) -> Key:
        return with_fallback(name, given, read, plain=plain, layer=address)

    address = None if otherwise is None else otherwise.address
    return Key(name, bind, plain=plain and fallback.plain, address=address, _within=None if layer else within)


def key_option(given: Any, option: str = "key") -> Key:
    """Returns a Key from an option, which may also be a function of the request."""
    if isinstance(given, Key):
        return given
    if isinstance(given, str):
        raise ConfigError(
            f"{option} is the text {shortened(given)}, which would be one budget for everybody: write "
            f"{option}=fixed({given[:64]!r}) if that is meant; else give a Key such as client_ip() or user(), or a "
            "function of the request"
        )
    check_helper(given, option)
    if not callable(given):
        raise ConfigError(
            f"{option} must be a function of the request or a Key such as client_ip(), not {shown(given)}"
        )
    function = with_arity(given, 1, option)
    return Key(name_of(given), lambda _: function)


def fixed(name: str) -> Key:
    """One key for all requests: one budget for everybody. `name` is that key, for calls such as `peek` and `clear`."""
    try:
        usable = bool(name.encode())
    except (AttributeError, UnicodeError):
        usable = False
    if not usable:
        raise ConfigError(f'fixed() needs a text, such as fixed("all"), not {shown(name)}')
    check_constants(key=name)
    return Key(f"fixed({shortened(name)})", lambda _: lambda _: name, plain=True)


def header(name: str, *, otherwise: Key | Callable[..., Any] | None = None) -> Key:
    """The value of a header such as an API key, hashed before it is stored.

    The key of a request without that header is `otherwise`, a key or a function of the request. Without `otherwise` it
    is the client's address as the layer reads it, through the proxies that the layer's own `client_ip()` trusts.
    """

    if not isinstance(name, str) or _FIELD_NAME.fullmatch(name) is None:
        raise ConfigError(f'header() needs the name of a header, such as "X-API-Key", not {shown(name)}')

    def read(adapter: RequestAdapter, request: Request) -> str | None:
        found = adapter.header(request, name)
        return hashed(found) if found else None

    return with_fallback(f"header({name!r})", otherwise, read)


def user(*, otherwise: Key | Callable[..., Any] | None = None) -> Key:
    """The authenticated user of the framework.

    The key of a request without a user is `otherwise`, or the client's address, as for `header`. If no authentication
    has run before the limit, the request raises ConfigError, unless you give `otherwise`.
    """

    def read(adapter: RequestAdapter, request: Request) -> str | None:
        found = _user_id(_authenticated("user()", adapter, adapter.user(request), otherwise))
        return None if found is None else marked(found)

    return with_fallback("user()", otherwise, read)


def claim(
    name: str,
    *,
    of: Callable[[Request], Mapping[str, Any] | None] | None = None,
    otherwise: Key | Callable[..., Any] | None = None,
) -> Key:
    """A claim of a token that the application has verified, such as "sub".

    `of` is a function of the request that returns the verified claims. Without it, they are read from the place that
    the module of the framework documents. The key of a request without the claim is `otherwise`, or the client's
    address, as for `header`. If the claims were not set before the limit, the request raises ConfigError, unless you
    give `otherwise`.
    """

    if not isinstance(name, str) or not name:
        raise ConfigError(f'claim() needs the name of a claim, such as "sub", not {shown(name)}')

    claims = None if of is None else with_arity(of, 1, "of")

    def read(adapter: RequestAdapter, request: Request) -> str | None:
        given = adapter.claims(request) if claims is None else claims(request)
        found = _authenticated(f"claim({name!r})", adapter, given, otherwise)
        claimed = None if found is None else found.get(name)
        return None if claimed is None else marked(str(claimed))

    return with_fallback(f"claim({name!r})", otherwise, read, plain=of is None)


# The key helpers, and an example of their arguments for messages.
_HELPERS: dict[Any, str] = {client_ip: "", user: "", header: '"X-API-Key"', claim: '"sub"', fixed: '"all"'}


def check_helper(given: Any, option: str = "key") -> None:
    """Raises for a key helper that was not called."""
    for helper, arguments in _HELPERS.items():
        if given is helper:
            name = helper.__name__
            raise ConfigError(f"the key helper {name} has to be called: write {option}={name}({arguments})")


def marked(name: str) -> str:
    """Returns the key of a name. Raises if the name is no valid text."""
    try:
        return named(name)
    except KeyInvalid as error:
        raise UnusableKey(error.message) from None


def _authenticated(name: str, adapter: RequestAdapter, found: Any, otherwise: object) -> Any:
    """Returns the result of authentication. Raises if none has run and there is no `otherwise`."""
    if found is not UNAUTHENTICATED:
        return found
    if otherwise is not None:
        return None
    raise ConfigError(
        f"{name} is the key of a limit, and no authentication has run before it: {adapter.authentication}. "
        f"A key for requests without authentication is chosen with {name[:-1]}{', ' if name != 'user()' else ''}"
        "otherwise=client_ip())"
    )


def _user_id(given: Any) -> str | None:
    """Returns the value that identifies a user, an object of any class."""
    if given is None or getattr(given, "is_authenticated", True) is False:
        return None
    if isinstance(given, (str, int)):
        return str(given) or None
    for name in ("pk", "id", "identity", "username", "display_name"):
        try:
            found = getattr(given, name, None)
        except NotImplementedError:
            continue
        if found is not None and not callable(found):
            return str(found)
    if callable(get_id := getattr(given, "get_id", None)):
        found = get_id()
        return None if found is None else str(found)
    raise KeyInvalid(f"user() cannot tell who {type(given).__name__} is: give a key function that can")


# These headers have no HTTP_ before their names.
_WITHOUT_PREFIX = {"CONTENT_TYPE", "CONTENT_LENGTH"}


class EnvironAdapter:
    """The part of a RequestAdapter that reads the environ. Each framework adds its own user and claims."""

    authentication = "it has to run earlier"

    def environ(self, request: Any) -> Any:
        """Returns the environ of a framework's request."""
        raise NotImplementedError

    def peer(self, request: Any) -> str | None:
        """Returns the address at the other end of the connection."""
        address: str | None = self.environ(request).get("REMOTE_ADDR")
        # nginx passes "unix:" on for a client of its own Unix domain socket.
        return None if address == "unix:" else address

    def over_unix(self, request: Any) -> bool:
        """True if the server announces that it listens on a Unix domain socket."""
        environ = self.environ(request)
        if environ.get("REMOTE_ADDR") == "unix:":
            return True
        # WSGI does not define this. gunicorn passes its socket on. Other servers have a path as their name, or no port.
        if (connection := environ.get("gunicorn.socket")) is not None:
            return getattr(connection, "family", None) == getattr(socket, "AF_UNIX", -1)
        return "/" in environ.get("SERVER_NAME", "") or environ.get("SERVER_PORT", "0") in (None, "", "None")

    def header(self, request: Any, name: str) -> Any:
        """Returns the value of a header."""
        field = name.upper().replace("-", "_")
        return self.environ(request).get(field if field in _WITHOUT_PREFIX else "HTTP_" + field)

    def forwarded(self, request: Any) -> list[bytes]:
        """Returns the lines of X-Forwarded-For. There is one at most, because a server joins the lines of a header."""
        line = self.environ(request).get("HTTP_X_FORWARDED_FOR")
        return [] if line is None else [line.encode("latin-1", "replace")]
