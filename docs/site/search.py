"""A hook of mkdocs that ranks the pages in the search of the site.

Guides come before the reference, and both before decisions, changes and measurements. KEYWORDS has words that a reader
types and that the title of the page lacks. They stand in the search index as tags of the page.
"""

from __future__ import annotations

from typing import Any

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
        "tat",
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
    ],
    "guides/concurrency.md": ["semaphore", "concurrent requests", "in flight", "tokens", "release"],
    "guides/denials.md": [
        "429",
        "too many requests",
        "retry-after",
        "headers",
        "custom response",
        "error message",
        "ratelimit header",
    ],
    "guides/jobs.md": ["celery", "bullmq", "background", "worker", "task queue"],
    "guides/llm.md": ["openai", "anthropic", "llm", "tokens per minute", "tpm", "rpm", "budget", "chatgpt", "claude"],
    "guides/outgoing.md": [
        "httpx",
        "requests",
        "aiohttp",
        "fetch",
        "undici",
        "reqwest",
        "api client",
        "scraper",
        "backoff",
    ],
    "guides/queues.md": ["wait", "acquire", "throttle", "queue", "fifo"],
    "guides/several-limits.md": [
        "multiple limits",
        "plans",
        "per user",
        "override",
        "priority",
        "premium",
        "block_for",
        "ban",
        "shadow",
        "dry run",
    ],
    "guides/testing.md": ["pytest", "mock clock", "freezegun", "time travel", "jest", "vitest", "disable in tests"],
    "production/checklist.md": ["production", "go live", "best practices", "deploy"],
    "production/operations.md": [
        "store",
        "redis url",
        "acl",
        "permissions",
        "noperm",
        "tls",
        "rediss",
        "unix socket",
        "file store",
        "memory usage",
        "eviction",
        "valkey",
        "password",
    ],
    "production/refused.md": [
        "why",
        "refused",
        "debug",
        "customer limited",
        "inspect",
        "log",
        "block an ip",
        "unblock",
        "support",
        "clear a key",
        "raise a limit",
        "429 without a reason",
    ],
    "production/scaling-out.md": [
        "multiple workers",
        "several workers",
        "cluster",
        "sentinel",
        "shards",
        "leases",
        "several machines",
        "distributed",
        "redis",
    ],
    "production/store-failures.md": ["redis down", "outage", "fail open", "fail closed", "fallback", "timeout", "503"],
    "production/upgrading.md": ["upgrade", "downgrade", "migration", "stored values"],
    "metrics.md": ["prometheus", "grafana", "opentelemetry", "tracing", "monitoring", "alerts", "spans"],
    "reference/command.md": ["cli", "tidegate command", "simulate", "doctor", "top", "explain"],
    "reference/errors.md": ["error codes", "exceptions", "store_unavailable", "policy_invalid", "key_invalid"],
    "reference/notation.md": ["syntax", "grammar", "format", "per minute"],
    "reference/options.md": ["settings", "parameters", "defaults", "configuration"],
    "reference/policy-file.md": ["yaml", "toml", "json", "config file", "hot reload", "sighup"],
    "reference/compatibility.md": ["upgrade", "versions", "supported", "python version", "node version"],
    "recipes/plans.md": [
        "plans",
        "allowlist",
        "whitelist",
        "blocklist",
        "per tenant",
        "multi-tenant",
        "database",
        "premium",
    ],
    "recipes/graphql.md": ["graphql", "query cost", "complexity"],
    "recipes/websockets.md": ["websocket", "messages", "streaming", "sse", "socket.io"],
    "recipes/serverless.md": ["serverless", "lambda", "edge", "cloudflare workers", "vercel", "wasm"],
    "recipes/bundlers.md": ["esbuild", "webpack", "vite", "next.js", "bundle", "native addon"],
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
    "moving/governor.md": ["governor", "tower_governor", "migrate"],
    "moving/bottleneck.md": ["bottleneck", "migrate"],
    "frameworks/flask.md": ["flask", "blueprint", "gunicorn", "proxyfix", "create_app", "application factory"],
    "frameworks/fastapi.md": ["fastapi", "starlette", "depends", "uvicorn", "openapi", "websocket"],
    "frameworks/django.md": ["django", "drf", "rest framework", "throttle classes", "middleware"],
    "frameworks/express.md": ["express", "middleware", "node"],
    "frameworks/fastify.md": ["fastify", "plugin"],
    "frameworks/koa.md": ["koa"],
    "frameworks/hono.md": ["hono", "bun", "deno"],
    "frameworks/next.md": ["next.js", "nextjs", "route handler", "proxy.js", "middleware", "server action"],
    "frameworks/web.md": [
        "fetch",
        "request",
        "response",
        "sveltekit",
        "astro",
        "react router",
        "remix",
        "h3",
        "nitro",
        "nuxt",
        "elysia",
        "bun",
        "deno",
    ],
    "frameworks/trpc.md": ["trpc", "procedure"],
    "frameworks/mcp.md": ["mcp", "model context protocol", "tools", "agent"],
    "frameworks/nest.md": ["nestjs", "nest", "guard", "graphql", "microservice", "websocket", "gateway"],
    "frameworks/axum.md": ["axum", "rust", "tower"],
    "frameworks/tonic.md": ["tonic", "grpc"],
    "frameworks/tower.md": ["tower", "hyper"],
}


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Gives a page its boost and its keywords."""
    source = page.file.src_uri
    below = max((path for path in BOOSTS if source.startswith(path)), key=len)
    page.meta.setdefault("search", {})["boost"] = BOOSTS[below]
    if source in KEYWORDS:
        page.meta["tags"] = KEYWORDS[source]
    return markdown


def on_files(files: Any, config: Any) -> Any:
    """Fails if a page with keywords does not exist."""
    missing = [source for source in KEYWORDS if files.get_file_from_path(source) is None]
    if missing:
        raise SystemExit(f"docs/site/search.py has keywords of pages that do not exist: {missing}")
    return files
