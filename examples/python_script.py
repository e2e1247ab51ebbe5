"""A script that logs people in, and one that sends mail: the first five minutes with Tidegate.

Needs: nothing else. With REDIS_URL set, processes on any number of machines share the limits.

    python examples/python_script.py
"""

import asyncio
import os

from tidegate import AsyncLimiter, Limiter, Policy, RateLimited

STORE = os.environ.get("REDIS_URL", "memory://")
POLICIES = {
    "login": "20/minute; 5/3s",
    "mail": Policy("gcra 2/s burst 3", journal=100),
    "export": "concurrency 2 ttl 30s",
}

limiter = Limiter(STORE, policies=POLICIES)


def log_in(user: str) -> None:
    decision = limiter.check("login", user)
    if decision:
        print(f"{user} may try; {decision.remaining} tries are left")
    else:
        print(f"{user} has to wait {decision.retry_after:.1f} s: {decision.limit} tries in 3 s were used up")


@limiter.limit("mail", key=lambda user, text: user)
def send_mail(user: str, text: str) -> None:
    print(f"to {user}: {text}")


async def export(limiter: AsyncLimiter, number: int) -> None:
    try:
        async with limiter.hold("export", "alice"):
            print(f"export {number} is running")
            await asyncio.sleep(0.05)
    except RateLimited:
        print(f"export {number} would be the third at the same time")


async def exports() -> None:
    # The same limiter, for event loops.
    async_limiter = limiter.to_async()
    await asyncio.gather(*[export(async_limiter, number) for number in (1, 2, 3)])


def main() -> None:
    for _ in range(6):
        log_in("alice")

    for number in range(4):
        try:
            send_mail("bob", f"this is message {number}")
        except RateLimited as limited:
            print(f"not sent: try again in {limited.decision.retry_after:.1f} s")

    # All or nothing, also across keys.
    print("both:", bool(limiter.check_all([("login", "alice"), ("login", "carol")])))

    # Wait for it instead of giving up.
    print("waited:", bool(limiter.acquire("mail", "bob", timeout=5.0)))

    asyncio.run(exports())


if __name__ == "__main__":
    main()
