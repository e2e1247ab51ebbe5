"""The options of the servers of a test."""

from __future__ import annotations

from typing import Any

from .errors import HarnessError

DEFAULTS: dict[str, Any] = {
    "tls": False,  # a TLS port beside the plain one, or "expired" for an expired certificate
    "client_certs": False,  # TLS clients must show a certificate
    "password": None,  # of the default user
    "users": {},  # name -> ACL rules, {"app": "on >secret ~tg:* +eval"}
    "clock": False,  # True if the command "clock" can set the server's clock
    "databases": 16,
    "config": {},  # any further redis.conf settings, or settings of PostgreSQL
    "disk": None,  # of a PostgreSQL server: the size of a file system for a tablespace, "1m". It needs root
    "replicas": 1,  # of kind "replica"
    "master_name": "tidegate",  # of kind "sentinel"
    "down_after_ms": 1_000,  # sentinels and cluster nodes regard a server as down after this silence
}


class Options:
    """The options of one request. An unknown name is an error, so that a typing mistake is noticed."""

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
        self.disk: str = merged["disk"] or ""
        self.replicas: int = int(merged["replicas"])
        self.master_name: str = merged["master_name"]
        self.down_after_ms: int = int(merged["down_after_ms"])

    def config_lines(self) -> list[str]:
        """Returns the part of redis.conf that the options determine."""
        lines = [f"databases {self.databases}"]
        if self.password:
            lines.append(f"requirepass {_quoted(self.password)}")
        lines += [f"user {name} {rules}" for name, rules in self.users.items()]
        # Written as given, because some settings are several words. Only an empty value needs quotes.
        lines += [f"{name} {value}" if value != "" else f'{name} ""' for name, value in self.config.items()]
        return lines


def _quoted(text: str) -> str:
    """Writes a text as redis.conf reads any text, with blanks and quotes."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in text.encode()) + '"'
