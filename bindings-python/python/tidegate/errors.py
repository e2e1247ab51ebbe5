"""The exceptions of Tidegate. A denial is a Decision. Only `hold`, decorators and integrations raise an error."""

from __future__ import annotations

from ._shown import shortened

# A constant that type checkers know. Importing `typing` would take longer than the rest of this package.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._tidegate import Decision

__all__ = [
    "ClosedError",
    "ConfigError",
    "CostError",
    "KeyInvalid",
    "PolicyError",
    "RateLimited",
    "StoreError",
    "TidegateError",
]


class TidegateError(Exception):
    """The base class of all exceptions of Tidegate.

    `code` is stable and the same in Rust, Python and Node. `message` is one sentence that explains the error.
    """

    code: str
    message: str

    def __init__(self, message: str, code: str) -> None:
        # Not super(): a subclass that is also an exception of a web framework has a status as its first argument.
        Exception.__init__(self, message)
        self.message = message
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        # `pickle` would call the class with the message, but each class has its own arguments.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[TidegateError], arguments: tuple[object, ...], fields: dict[str, object]) -> TidegateError:
    error = kind.__new__(kind, *arguments)
    BaseException.args.__set__(error, arguments)  # type: ignore[attr-defined]
    error.__dict__.update(fields)
    return error


class PolicyError(TidegateError, ValueError):
    """A policy, a limit, a notation or a policy file is wrong (`policy_invalid`), or the limiter has no policy of that
    name (`policy_unknown`).

    `line` and `column` are the position in `file` or in `text`, counted from 1. They are None for an error that has no
    position.
    """

    file: str | None
    line: int | None
    column: int | None
    text: str | None

    def __init__(
        self,
        message: str,
        code: str = "policy_invalid",
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        text: str | None = None,
    ) -> None:
        super().__init__(message, code)
        self.file = file
        self.line = line
        self.column = column
        self.text = text


class CostError(TidegateError, ValueError):
    """A cost is not a whole number from 1 to 2^53 - 1 (`cost_invalid`)."""

    def __init__(self, message: str, code: str = "cost_invalid") -> None:
        super().__init__(message, code)


class KeyInvalid(TidegateError, ValueError):
    """A key is not text, or too long (`key_invalid`)."""

    def __init__(self, message: str, code: str = "key_invalid") -> None:
        super().__init__(message, code)


class ConfigError(TidegateError, ValueError):
    """A store URL or an option is wrong (`config_invalid`)."""

    def __init__(self, message: str, code: str = "config_invalid") -> None:
        super().__init__(message, code)


class StoreError(TidegateError):
    """The store cannot be reached (`store_unavailable`), is too slow (`store_timeout`) or answered with an error
    (`store_rejected`).

    Checks raise it only with on_store_error="raise".
    """

    # The Headers and the policies that the response announces, if the request could not be checked.
    _announced: tuple[Any, tuple[Any, ...]] | None = None

    def __init__(self, message: str, code: str = "store_unavailable") -> None:
        super().__init__(message, code)


class ClosedError(TidegateError, RuntimeError):
    """The limiter is closed (`closed`)."""

    def __init__(self, message: str, code: str = "closed") -> None:
        super().__init__(message, code)


class RateLimited(TidegateError):
    """Raised by `hold` and by decorated functions when a limit denies the call (`rate_limited`).

    You find the wait in `decision.retry_after`. Task queues that send errors as JSON, such as Celery, keep the
    Decision: `args` holds plain data, from which the class makes the error again.
    """

    decision: Decision

    def __init__(self, decision: Decision | dict[str, Any]) -> None:
        if isinstance(decision, dict):
            from ._plain import from_plain

            found: Decision = from_plain(decision)
        else:
            found = decision
        wait = found.retry_after
        when = "it will never be admitted" if wait is None else f"try again in {wait:.3f} s"
        super().__init__(f"{shortened(found.policy)} denies {shortened(found.key)}: {when}", "rate_limited")
        self.decision = found

    @property
    def args(self) -> tuple[Any, ...]:  # type: ignore[override]
        """The arguments that make the error again, as JSON values."""
        from ._plain import to_plain

        return (to_plain(self.decision),)

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), (self.message,), self.__dict__)

    def __str__(self) -> str:
        return self.message
