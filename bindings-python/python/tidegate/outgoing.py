"""What the responses of other services say of their limits.

With any client::

    response = httpx.get("https://api.example.com/")
    for observation in Observation.from_headers(response.headers, status=response.status_code):
        print(observation)
"""

from __future__ import annotations

from ._tidegate import Observation

__all__ = ["Observation"]
