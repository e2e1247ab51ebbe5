"""The options of the servers of a test."""

from __future__ import annotations

from typing import Any

from .errors import HarnessError

DEFAULTS: dict[str, Any] = {
    "tls": False,  # a TLS port beside the plain one; "expired" for an expired certificate
    "client_certs": False,  # TLS clients must show a certificate
    "password": None,  # of the default user
    "users": {},  # name -> ACL rules, {"app": "on >secret ~tg:* +eval"}
    "clock": False,  # whether the server's clock can be set, by the command "clock"
    "databases": 16,
    "config": {},  # any further redis.conf settings
    "replicas": 1,  # of kind "replica"
    "master_name": "tidegate",  # of kind "sentinel"
    "down_after_ms": 1_000,  # after how long sentinels and cluster nodes regard a silent server as down
}


class Options:
    """The options of one request; an unknown name is an error, so that a typing mistake is noticed."""

    def __init__(self, given: dict[str, Any]) -> None:
        unknown = sorted(set(given) - set(DEFAULTS))
        if unknown:
            raise HarnessError(f"unknown option {unknown[0]!r}; known are {', '.join(DEFAULTS)}")
        merged = {**DEFAULTS, **given}
        self.tls: bool = bool(merged["tls"])
        self.expired: bool = merged["tls"] == "expired"
        self.client_certs: bool = bool(merged["client_certs"])
        self.password: str = merged["password"] or ""
        self.users: dict[str, str] = merged["users"]
        self.clock: bool = bool(merged["clock"])
        self.databases: int = int(merged["databases"])
        self.config: dict[str, Any] = merged["config"]
        self.replicas: int = int(merged["replicas"])
        self.master_name: str = merged["master_name"]
        self.down_after_ms: int = int(merged["down_after_ms"])

    def config_lines(self) -> list[str]:
        """The part of redis.conf that the options determine."""
        lines = [f"databases {self.databases}"]
        if self.password:
            lines.append(f"requirepass {_quoted(self.password)}")
        lines += [f"user {name} {rules}" for name, rules in self.users.items()]
        # Written as given, since some settings are several words; only an empty value needs quotes.
        lines += [f"{name} {value}" if value != "" else f'{name} ""' for name, value in self.config.items()]
        return lines


def _quoted(text: str) -> str:
    """As redis.conf reads any text, blanks and quotes included."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in text.encode()) + '"'
