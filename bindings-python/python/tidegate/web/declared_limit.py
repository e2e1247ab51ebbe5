"""A limit as an application writes it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from .._constants import check_constants, empty_limiter
from .._shown import shortened, shown
from .._tidegate import Headers, Policy
from ..errors import ConfigError, CostError, PolicyError
from .functions import is_async, name_of, with_arity
from .keys import Key, claim, client_ip, fixed, header, user
from .methods import limited_methods
from .options import LIMIT_OPTIONS, LimitOptions, check_names

if TYPE_CHECKING:
    from typing_extensions import Unpack

VARIABLE = "TIDEGATE_ENABLED"

_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def enabled_option(given: object) -> bool | None:
    """The option of a layer or of a limit. None: it was not given."""
    if given is None or isinstance(given, bool):
        return given
    raise ConfigError(f"enabled is True or False, not {shown(given)}")


def enabled_setting(given: object, name: str) -> bool:
    """What a configuration says, which may be a text."""
    if isinstance(given, (bool, int)) and given in (0, 1):
        return bool(given)
    word = _WORDS.get(given.strip().lower()) if isinstance(given, str) else None
    if word is None:
        raise ConfigError(f"{name} is true or false (or 1, 0, yes, no, on, off), not {shown(given)}")
    return word


def enabled_layer(option: bool | None) -> bool:
    """Whether a layer is enabled: what its option says, else the environment, else yes."""
    if option is not None:
        return option
    variable = os.environ.get(VARIABLE, "")
    return enabled_setting(variable, f"the environment variable {VARIABLE}") if variable else True


# A name, a notation, a Policy, several of these or of (policy, key, cost), or a function of the request.
PolicyOption: TypeAlias = "str | Policy | Sequence[Any] | Callable[..., Any]"
# A policy with its key and its cost, either of which may be a function of the request, and whether the cost was given
# to this policy.
KeyedPolicy: TypeAlias = "tuple[str | Policy, Key, Any, bool]"

# How long holds last.
RESPONSE, HANDLER = "response", "handler"

# The key helpers, and what each is called with.
_HELPERS: dict[Any, str] = {client_ip: "", user: "", header: '"X-API-Key"', claim: '"sub"', fixed: '"all"'}

# The code of an error in a name, which only the limiter of a layer knows.
_UNKNOWN = "policy_unknown"


class DeclaredLimit:
    """One or several policies with their options. What is wrong with them is an error here, where they are written."""

    __slots__ = (
        "async_option",
        "choose",
        "cost",
        "enabled",
        "headers",
        "hold_until",
        "key",
        "meta",
        "methods",
        "on_denied",
        "per_method",
        "policies",
        "refund_when",
        "settle",
        "skip",
    )

    def __init__(self, policy: PolicyOption, **options: Unpack[LimitOptions]) -> None:
        check_names(options, LIMIT_OPTIONS, "a limit")
        # The first option that is an async function, which not every framework can call.
        self.async_option = next(
            (name for name, given in {"policy": policy, **options}.items() if name != "on_denied" and is_async(given)),
            None,
        )
        self.key = None if (key := options.get("key")) is None else key_option(key)
        self.cost = cost_option(options.get("cost", 1))
        # The function that returns the policies of a request, when they are not the same for all.
        self.choose: Callable[..., Any] | None = None
        self.policies: list[KeyedPolicy] = []
        if callable(policy):
            self.choose = _policy_function(policy)
        else:
            self.policies = self.policies_of(policy)
            if not self.policies:
                raise ConfigError("policy is an empty list: give at least one policy")
            for use in self.policies:
                _check_notation(use[0])
        skip, on_denied = options.get("skip"), options.get("on_denied")
        refund_when, settle = options.get("refund_when"), options.get("settle")
        self.skip = None if skip is None else with_arity(skip, 1, "skip")
        self.on_denied = None if on_denied is None else with_arity(on_denied, 2, "on_denied")
        self.refund_when = None if refund_when is None else with_arity(refund_when, 2, "refund_when")
        self.settle = None if settle is None else with_arity(settle, 2, "settle")
        meta = options.get("meta")
        if isinstance(meta, (str, bytes)):
            check_constants(meta=meta)
        self.meta = meta if meta is None or isinstance(meta, (str, bytes)) else with_arity(meta, 1, "meta")
        self.headers = Headers(options.get("headers", "both"))
        self.hold_until = options.get("hold_until", RESPONSE)
        if self.hold_until not in (RESPONSE, HANDLER):
            raise ConfigError(f"hold_until is {RESPONSE!r} or {HANDLER!r}, not {shown(self.hold_until)}")
        self.methods = limited_methods(options.get("methods"))
        self.enabled = enabled_option(options.get("enabled")) is not False
        self.per_method = options.get("per_method", False)
        if not isinstance(self.per_method, bool):
            raise ConfigError(f"per_method is True or False, not {shown(self.per_method)}")

    def policies_of(self, given: Any, *, of_request: bool = False) -> list[KeyedPolicy]:
        """Each policy with its key and its cost. `given` is one policy or several; of one request a key may be text."""
        several = given if isinstance(given, (list, tuple)) else [given]
        return [self._policy_use(one, key_of_request if of_request else key_option) for one in several]

    def _policy_use(self, given: Any, key_of: Callable[[Any], Key]) -> KeyedPolicy:
        policy, *rest = given if isinstance(given, (list, tuple)) and given else (given,)
        if isinstance(policy, Key):
            raise ConfigError(f"{policy!r} is a key, and stands where a policy belongs: write key={policy!r}")
        if not isinstance(policy, (str, Policy)) or len(rest) > 2:
            raise ConfigError(f"a policy is a name, a notation, a Policy or (policy, key, cost), not {shown(given)}")
        key: Key | None = key_of(rest[0]) if rest and rest[0] is not None else self.key
        names_cost = len(rest) > 1
        return policy, key or client_ip(), cost_option(rest[1]) if names_cost else self.cost, names_cost


def key_option(given: Any) -> Key:
    """A Key, from what may stand for one: a function of the request."""
    if isinstance(given, Key):
        return given
    if isinstance(given, str):
        raise ConfigError(
            f"key is the text {shortened(given)}, which would be one budget for everybody: write "
            f"key=fixed({given[:64]!r}) if that is meant; else give a Key such as client_ip() or user(), or a function "
            "of the request"
        )
    _check_helper(given)
    if not callable(given):
        raise ConfigError(f"key is a function of the request or a Key such as client_ip(), not {shown(given)}")
    function = with_arity(given, 1, "key")
    return Key(name_of(given), lambda _: function)


def key_of_request(given: Any) -> Key:
    """The key from a policy function, which may return that of its request as text."""
    return Key(shortened(given), lambda _: lambda _: given) if isinstance(given, str) else key_option(given)


def _check_helper(given: Any) -> None:
    """Raises for a key helper that was not called."""
    for helper, arguments in _HELPERS.items():
        if given is helper:
            name = helper.__name__
            raise ConfigError(f"the key helper {name} has to be called: write key={name}({arguments})")


def cost_option(given: Any) -> Any:
    """A number of units, or a function of the request."""
    if callable(given):
        return with_arity(given, 1, "cost")
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise CostError(f"cost is a whole number or a function of the request, not {shown(given)}")
    if given < 1:
        raise CostError(f"cost is {given}: a request costs at least 1; use skip for those that cost nothing")
    check_constants(cost=given)
    return given


def _policy_function(given: Any) -> Callable[..., Any]:
    """A function of the request that returns its policies."""
    _check_helper(given)
    name, told = name_of(given), 'a limit alone has no policy, write @tg.limit("5/minute") above a view'
    if inspect.isclass(given):
        raise ConfigError(f"{name} is a class, where a policy belongs: {told}")
    try:
        parameters = inspect.signature(given).parameters.values()
    except (TypeError, ValueError):
        parameters = ()  # type: ignore[assignment]
    else:
        positional = (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            inspect.Parameter.VAR_POSITIONAL,
        )
        if not any(one.kind in positional for one in parameters):
            raise ConfigError(f"{name} stands where a policy belongs and takes no request: {told}")
    return with_arity(given, 1, "policy")


def _check_notation(policy: str | Policy) -> None:
    """Raises for a text that is wrong as a notation. One word may be a name, which the limiter of a layer knows."""
    if isinstance(policy, str) and any(one.isspace() or one in "/;|," for one in policy.strip()):
        try:
            empty_limiter().policy(policy)
        except PolicyError as error:
            if error.code != _UNKNOWN:
                raise
