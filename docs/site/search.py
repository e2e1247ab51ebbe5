"""A hook of mkdocs that ranks the pages in the search of the site.

Guides come before the reference, and both before decisions, changes and measurements. KEYWORDS has words of a page
that a reader types to find just this page. They are tags of the page in the search index. Each stands on its page, so
that a reader who came for the word finds it there.
"""

from __future__ import annotations

import re
from typing import Any

from mkdocs.plugins import get_plugin_logger

log = get_plugin_logger("search words")

# The boost of the pages below a path. The longest path counts.
BOOSTS = {
    "": 1.0,
    "start.md": 2.0,
    "guides/": 2.0,
    "frameworks/": 2.0,
    "production/": 2.0,
    "recipes/": 2.0,
    "moving/": 1.5,
    "reference/node/": 0.3,
    "reference/python.md": 0.5,
    "adr/": 0.05,
    "benchmarks/": 0.1,
    "contributing/": 0.05,
    "ARCHITECTURE.md": 0.05,
    "CHANGELOG.md": 0.05,
    "CONTRIBUTING.md": 0.05,
    "SECURITY.md": 0.2,
}

KEYWORDS = {
    "start.md": ["quickstart", "getting started", "install", "asgi", "wsgi", "starlette", "decorator"],
    "guides/algorithms.md": [
        "gcra",
        "token bucket",
        "leaky bucket",
        "sliding window",
        "fixed window",
        "windows",
        "burst",
    ],
    "guides/calendars.md": ["monthly quota", "daily limit", "timezone", "billing period"],
    "guides/callers.md": [
        "behind a proxy",
        "x-forwarded-for",
        "nginx",
        "load balancer",
        "cloudflare",
        "ip address",
        "ipv6",
        "api key",
        "jwt",
        "unix domain socket",
    ],
    "guides/concurrency.md": ["semaphore", "concurrent requests", "in flight", "tokens", "release"],
    "guides/denials.md": [
        "429",
        "too many requests",
        "retry-after",
        "custom response",
        "error message",
        "ratelimit header",
        "log of refusals",
    ],
    "guides/jobs.md": ["celery", "bullmq", "background job", "worker", "task queue"],
    "guides/llm.md": ["openai", "langchain", "anthropic", "llm", "tokens per minute", "tpm", "rpm", "budget"],
    "guides/outgoing.md": ["httpx", "requests", "aiohttp", "fetch", "undici", "reqwest", "backlog"],
    "guides/outgoing-python.md": ["httpx", "requests", "aiohttp", "http_client"],
    "guides/outgoing-node.md": ["fetch", "undici", "axios"],
    "guides/outgoing-rust.md": ["reqwest", "tower", "hyper-util"],
    "guides/outgoing-programs.md": ["scraper", "batch", "queue of orders"],
    "guides/reported-limits.md": ["x-ratelimit-remaining", "github", "openai", "observe"],
    "guides/queues.md": ["wait", "acquire", "throttle", "queue", "fifo"],
    "guides/several-limits.md": ["multiple limits", "per user", "check_all", "units"],
    "guides/policies.md": ["shadow", "dry run", "journal", "database"],
    "guides/overrides.md": ["override", "raise a limit", "premium", "CIDR"],
    "guides/blocks.md": ["ban", "block_for", "count_denied", "unblock"],
    "guides/priorities.md": ["priority", "priorities", "batch"],
    "guides/partial.md": ["partial", "granted"],
    "guides/testing.md": ["pytest", "mock clock", "freezegun", "time travel", "jest", "vitest"],
    "production/checklist.md": ["production", "go live", "best practices"],
    "production/guarantees.md": ["guarantees", "failover", "atomic", "topology"],
    "production/stores.md": ["store", "redis url", "tls", "rediss", "file store", "valkey", "password", "dns"],
    "production/file.md": ["file", "without redis", "without a server", "reboot"],
    "production/postgres.md": ["postgres", "PgBouncer", "durability"],
    "production/your-own-store.md": ["SQLite", "DynamoDB", "MongoDB", "your own store"],
    "production/redis.md": [
        "acl",
        "permissions",
        "noperm",
        "eviction",
        "noeviction",
        "bytes",
        "memory usage",
        "evalsha",
        "cpu",
    ],
    "production/operations.md": ["sizing", "deploys", "memory of a process", "fork"],
    "production/refused.md": [
        "why",
        "refused",
        "debug",
        "inspect",
        "log",
        "block an ip",
        "unblock",
        "support",
        "clear a key",
        "raise a limit",
    ],
    "production/scaling-out.md": [
        "multiple workers",
        "cluster",
        "sentinel",
        "shards",
        "leases",
        "several machines",
        "distributed",
        "redis",
    ],
    "production/store-failures.md": ["redis is down", "outage", "fail open", "fail closed", "timeout", "503"],
    "production/upgrading.md": ["upgrade", "downgrade", "stored values"],
    "metrics.md": ["prometheus", "grafana", "opentelemetry", "tracing", "monitoring", "alerts", "spans"],
    "reference/command.md": ["cli", "verb", "simulate", "doctor", "top", "explain"],
    "reference/errors.md": ["error codes", "exceptions", "store_unavailable", "policy_invalid", "key_invalid"],
    "reference/notation.md": ["syntax", "per minute"],
    "reference/options.md": ["defaults"],
    "reference/policy-file.md": ["yaml", "toml", "json", "config file", "hot reload", "sighup"],
    "reference/compatibility.md": ["versions", "support"],
    "reference/glossary.md": ["glossary", "words"],
    "recipes/login.md": ["login", "brute force", "account", "passwords"],
    "recipes/nginx.md": ["nginx", "gunicorn", "x-forwarded-for", "workers"],
    "recipes/express-plans.md": ["express", "plans", "headers", "visitor"],
    "recipes/health-checks.md": ["health check", "exempt", "load balancer", "ready"],
    "recipes/daily-quota.md": ["daily quota", "deploy", "reboot", "api key"],
    "recipes/systemd-docker.md": ["systemd", "docker", "compose", "file"],
    "recipes/llm-workers.md": ["workers", "budget", "model", "timeout"],
    "recipes/plans.md": ["plans", "allowlist", "whitelist", "blocklist", "per tenant", "database", "premium"],
    "recipes/graphql.md": ["graphql", "query", "complexity"],
    "recipes/websockets.md": ["websocket", "messages", "streaming"],
    "recipes/serverless.md": ["serverless", "lambda", "edge", "cloudflare workers", "vercel"],
    "recipes/bundlers.md": ["esbuild", "webpack", "vite", "next.js", "bundle"],
    "recipes/managed-redis.md": [
        "elasticache",
        "upstash",
        "dragonfly",
        "memorystore",
        "azure",
        "managed redis",
        "valkey",
    ],
    "moving/flask-limiter.md": ["flask-limiter", "migrate"],
    "moving/slowapi.md": ["slowapi", "migrate"],
    "moving/limits.md": ["limits", "migrate"],
    "moving/throttled-py.md": ["throttled-py", "migrate"],
    "moving/pyrate-limiter.md": ["pyrate-limiter", "migrate"],
    "moving/rate-limiter-flexible.md": ["rate-limiter-flexible", "migrate"],
    "moving/express-rate-limit.md": ["express-rate-limit", "migrate"],
    "moving/fastify-rate-limit.md": ["fastify-rate-limit", "migrate"],
    "moving/nestjs-throttler.md": ["nestjs-throttler", "migrate"],
    "moving/governor.md": ["governor", "migrate"],
    "moving/bottleneck.md": ["bottleneck", "migrate"],
    "frameworks/flask.md": ["flask", "blueprint", "gunicorn", "proxyfix", "create_app", "application factory"],
    "frameworks/fastapi.md": ["fastapi", "starlette", "depends", "uvicorn", "openapi", "websocket"],
    "frameworks/django.md": ["django", "drf", "rest framework", "throttle classes", "middleware"],
    "frameworks/aiohttp-web.md": ["aiohttp", "aiohttp.web"],
    "frameworks/litestar.md": ["litestar", "asgi"],
    "frameworks/quart.md": ["quart"],
    "frameworks/sanic.md": ["sanic"],
    "frameworks/falcon.md": ["falcon", "wsgi"],
    "frameworks/mcp-python.md": ["mcp", "fastmcp", "tools"],
    "frameworks/express.md": ["express", "middleware", "node"],
    "frameworks/fastify.md": ["fastify", "plugin"],
    "frameworks/koa.md": ["koa"],
    "frameworks/hono.md": ["hono", "bun", "deno"],
    "frameworks/next.md": ["next.js", "route handler", "proxy.js", "server action"],
    "frameworks/web.md": [
        "fetch",
        "request",
        "response",
        "sveltekit",
        "astro",
        "react router",
        "h3",
        "nitro",
        "nuxt",
        "elysia",
        "bun",
        "deno",
    ],
    "frameworks/trpc.md": ["trpc", "procedure"],
    "frameworks/mcp.md": ["mcp", "tools"],
    "frameworks/nest.md": ["nestjs", "nest", "guard", "graphql", "microservice", "websocket", "gateway"],
    "frameworks/axum.md": ["axum", "rust", "tower"],
    "frameworks/tonic.md": ["tonic", "grpc"],
    "frameworks/tower.md": ["tower", "hyper"],
}


def plain(text: str) -> str:
    """A text as the search splits it: in lower case, with single blanks for hyphens and line breaks."""
    return re.sub(r"[\s\-]+", " ", text).lower()


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Gives a page its boost and its keywords."""
    source = page.file.src_uri
    below = max((path for path in BOOSTS if source.startswith(path)), key=len)
    page.meta.setdefault("search", {})["boost"] = BOOSTS[below]
    if source in KEYWORDS:
        page.meta["tags"] = KEYWORDS[source]
        if missing := [word for word in KEYWORDS[source] if plain(word) not in plain(markdown)]:
            log.warning("docs/site/search.py has words for %s that are not on the page: %s", source, missing)
    return markdown


def on_files(files: Any, config: Any) -> Any:
    """Fails if a page with keywords does not exist."""
    missing = [source for source in KEYWORDS if files.get_file_from_path(source) is None]
    if missing:
        raise SystemExit(f"docs/site/search.py has keywords of pages that do not exist: {missing}")
    return files
