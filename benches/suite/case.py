"""What is measured: a case, and the contenders that are compared in it."""

from __future__ import annotations

from dataclasses import dataclass, field

RATE = "checks/s"
REQUESTS = "requests/s"
NANOSECONDS = "ns per check"
MILLISECONDS = "ms"
SERVER_CPU = "µs of Redis CPU"
BYTES = "bytes per key"
# Of these units more is better; of the others less.
RATES = (RATE, REQUESTS)

# What is paid, where a unit is a cost.
PRICES = {NANOSECONDS: "time", MILLISECONDS: "time", SERVER_CPU: "Redis CPU", BYTES: "bytes"}

OURS, PEER, FLOOR = "ours", "peer", "floor"


@dataclass(frozen=True)
class Contender:
    """A program that is one round of one contender: its arguments are `name=value`."""

    name: str
    program: str
    arguments: dict[str, str] = field(default_factory=dict)
    # A floor does less than a limiter has to, so being behind it is no news.
    role: str = PEER


def ours(name: str, program: str, **arguments: object) -> Contender:
    return _contender(name, program, OURS, arguments)


def peer(name: str, program: str, **arguments: object) -> Contender:
    return _contender(name, program, PEER, arguments)


def floor(name: str, program: str, **arguments: object) -> Contender:
    return _contender(name, program, FLOOR, arguments)


def _contender(name: str, program: str, role: str, arguments: dict[str, object]) -> Contender:
    given = {"contender": name} if "contender" not in arguments else {}
    return Contender(name, program, given | {key: str(value) for key, value in arguments.items()}, role)


@dataclass(frozen=True)
class Case:
    """Contenders of one kind under the same terms."""

    name: str
    unit: str
    # How the figure is taken, for a reader who wants to repeat it.
    how: str
    contenders: tuple[Contender, ...]
    # The others are compared with it: the first one, unless it is named.
    reference: str = ""
    # The contender whose figure each one's share is taken of, such as the service without a limiter.
    share_of: str = ""
    # The kinds of stores beside memory: "single" and "cluster" are Redis servers, "file" is a file. A case may use
    # several.
    servers: tuple[str, ...] = ("single",)
    one_core: bool = False
    # The client may use both cores, which it then shares with the server.
    both_cores: bool = False
    # The figure is what the server's main thread spends for each decision, not what the program prints.
    server_cpu: bool = False
    # Whether the calls that the server gets for each decision are shown.
    calls: bool = False
    # Figures that do not change from round to round need one.
    rounds: int = 0
    # Programs that run once before the rounds.
    prepare: tuple[Contender, ...] = ()
    # Whether the chart of the README shows it.
    overview: bool = False
    # What keeps a peer ahead where one is, by a profile.
    reason: str = ""


@dataclass(frozen=True)
class Part:
    """Cases that `make bench ONLY=name` runs."""

    name: str
    title: str
    about: str
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Lengths:
    """How long everything takes: quick runs only show that it works."""

    quick: bool

    @property
    def rounds(self) -> int:
        return 2 if self.quick else 5

    @property
    def seconds(self) -> float:
        return 0.15 if self.quick else 0.6

    @property
    def warm(self) -> float:
        return 0.1 if self.quick else 0.25

    def keys(self, count: int) -> int:
        """A large number of keys, or fewer in a quick run."""
        return count // 50 if self.quick else count
