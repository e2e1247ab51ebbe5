"""The unit of measurement: a case, and the contenders that it compares."""

from __future__ import annotations

from dataclasses import dataclass, field

RATE = "checks/s"
REQUESTS = "requests/s"
NANOSECONDS = "ns per check"
MILLISECONDS = "ms"
SERVER_CPU = "µs of Redis CPU"
BYTES = "bytes per key"
# More is better in these units, and less in all others.
RATES = (RATE, REQUESTS)

# The name of the cost, for the units that are a cost.
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
    # The contender that the others are compared with, or the first one if this is empty.
    reference: str = ""
    # The figures are shown as shares of this contender's figure, such as that of the service without a limiter.
    share_of: str = ""
    # The kinds of stores beside memory: "single" and "cluster" are Redis servers, "file" is a file, "postgres" is a
    # server. A case may use several.
    servers: tuple[str, ...] = ("single",)
    one_core: bool = False
    # The client may use both cores, which it then shares with the server.
    both_cores: bool = False
    # The figure is the CPU time of the server's main thread per decision, not the figure that the program prints.
    server_cpu: bool = False
    # True to show the server's calls per decision.
    calls: bool = False
    # Figures that do not change from round to round need only one. 0 stands for the usual number.
    rounds: int = 0
    # Programs that run once before the rounds.
    prepare: tuple[Contender, ...] = ()
    # True to show the case in the chart of the README.
    overview: bool = False
    # If a peer is ahead, the reason according to a profile.
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
    """The lengths of all measurements. Quick runs only show that everything works."""

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
