"""A test of "20 per minute" that takes no time: give the limiter a clock, and move it.

Needs: nothing else. Run it, or let pytest find the tests.

    python examples/python_time_travel.py
"""

from tidegate import Limiter, ManualClock


class Accounts:
    """The code under test, which does not know of the clock."""

    def __init__(self, limiter: Limiter) -> None:
        self.limiter = limiter

    def log_in(self, user: str, password: str) -> str:
        decision = self.limiter.check("login", user)
        if not decision:
            return f"try again in {decision.retry_after:.0f} s"
        return "welcome" if password == "open sesame" else "no"


def make() -> tuple[Accounts, ManualClock]:
    clock = ManualClock()
    return Accounts(Limiter(policies={"login": "fixed-window 20/minute"}, clock=clock)), clock


def test_the_twenty_first_try_has_to_wait() -> None:
    accounts, clock = make()
    for _ in range(20):
        assert accounts.log_in("ali", "sesame") == "no"
    assert accounts.log_in("ali", "open sesame") == "try again in 60 s"
    clock.advance(59.999)
    assert accounts.log_in("ali", "open sesame").startswith("try again")
    clock.advance(0.001)
    assert accounts.log_in("ali", "open sesame") == "welcome"


def test_other_users_do_not_wait() -> None:
    accounts, _ = make()
    for _ in range(21):
        accounts.log_in("ali", "sesame")
    assert accounts.log_in("morgiana", "open sesame") == "welcome"


if __name__ == "__main__":
    test_the_twenty_first_try_has_to_wait()
    test_other_users_do_not_wait()
    print("twenty a minute, and no minute went by")
