//! The spans of `tracing`: their names and attributes are those of Python and Node (docs/metrics.md).

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::{Limiter, Result};
use tidegate_tests::any_limiter::fresh_prefix;
use tidegate_tests::servers::{Kind, Servers};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

type Fields = BTreeMap<String, String>;

/// Keeps spans and events. Its clones are the same.
#[derive(Clone, Default)]
struct Kept {
    spans: Arc<Mutex<Vec<(String, Fields)>>>,
    events: Arc<Mutex<Vec<Fields>>>,
    entered: Arc<AtomicU64>,
}

struct Reader<'a>(&'a mut Fields);

impl Visit for Reader<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        let _ = write!(text, "{value:?}");
        self.0.insert(field.name().to_owned(), text.trim_matches('"').to_owned());
    }
}

impl Subscriber for Kept {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tidegate"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::new();
        span.record(&mut Reader(&mut fields));
        let mut spans = self.spans.lock().expect("spans");
        spans.push((span.metadata().name().to_owned(), fields));
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(&mut Reader(&mut self.spans.lock().expect("spans")[span.into_u64() as usize - 1].1));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Reader(&mut fields));
        self.events.lock().expect("events").push(fields);
    }

    fn enter(&self, _: &Id) {
        self.entered.fetch_add(1, Ordering::Relaxed);
    }

    fn exit(&self, _: &Id) {}
}

impl Kept {
    /// The names, policies, outcomes and sources of the spans so far. They are taken.
    fn take(&self) -> Vec<[String; 4]> {
        let spans = std::mem::take(&mut *self.spans.lock().expect("spans"));
        let of = |(name, fields): (String, Fields)| {
            let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
            assert_eq!(field("otel.kind"), "client");
            [name, field("tidegate.policy"), field("tidegate.outcome"), field("tidegate.source")]
        };
        spans.into_iter().map(of).collect()
    }
}

fn limiter(url: &str) -> Limiter {
    let builder = Limiter::builder().store(url).prefix(fresh_prefix()).timeout(Duration::from_secs(10));
    builder.policy("login", "2/hour").expect("a policy").build().expect("a limiter")
}

const fn span<'a>(name: &'a str, policy: &'a str, outcome: &'a str) -> [&'a str; 4] {
    [name, policy, outcome, "store"]
}

/// The calls that decide, and the spans that they make.
const SPANS: [[&str; 4]; 6] = [
    span("tidegate.check", "login", "allowed"),
    span("tidegate.check", "login", "denied"),
    span("tidegate.charge", "login", "allowed"),
    span("tidegate.check_all", "login", "denied"),
    span("tidegate.acquire", "gcra 9/s", "allowed"),
    span("tidegate.hold", "concurrency 1 ttl 1 minute", "allowed"),
];

fn call_all(limiter: &Limiter) -> Result<()> {
    assert!(limiter.check_n("login", "k", 2)?.allowed() && !limiter.check("login", "k")?.allowed());
    // The deny cache answers this one, and no span is made.
    assert!(!limiter.check("login", "k")?.allowed());
    limiter.charge("login", "other", 1)?;
    assert!(!limiter.check_all([("login", "k"), ("9/s", "k")])?.allowed());
    limiter.acquire("gcra 9/s", "k", 1, None)?;
    drop(limiter.hold("concurrency 1", "k", 1)?);
    limiter.peek("login", "k", 1)?;
    Ok(())
}

async fn call_all_async(limiter: &tidegate::AsyncLimiter) -> Result<()> {
    assert!(limiter.check_n("login", "k", 2).await?.allowed() && !limiter.check("login", "k").await?.allowed());
    assert!(!limiter.check("login", "k").await?.allowed());
    limiter.charge("login", "other", 1).await?;
    assert!(!limiter.check_all([("login", "k"), ("9/s", "k")]).await?.allowed());
    limiter.acquire("gcra 9/s", "k", 1, None).await?;
    drop(limiter.hold("concurrency 1", "k", 1).await?);
    limiter.peek("login", "k", 1).await?;
    Ok(())
}

#[test]
fn calls_to_a_shared_store_are_spans_and_denials_are_events() {
    let (server, kept) = (Servers::start(Kind::Single), Kept::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tracing::subscriber::with_default(kept.clone(), || {
        call_all(&limiter(server.url())).expect("calls");
        assert_eq!(kept.take(), SPANS);
        assert!(kept.entered.load(Ordering::Relaxed) >= 6);
        let limiter = limiter(server.url()).to_async();
        runtime.block_on(call_all_async(&limiter)).expect("calls");
        let store = &kept.spans.lock().expect("spans")[0].1["tidegate.store"].clone();
        assert!(store.starts_with("redis://127.0.0.1:"), "{store}");
        assert_eq!(kept.take(), SPANS);
    });
    let events = kept.events.lock().expect("events");
    let denials: Vec<&Fields> = events.iter().filter(|event| event.contains_key("tidegate.limit")).collect();
    assert_eq!(denials.len(), 6, "{events:?}");
    assert!(denials.iter().all(|event| event["message"] == "tidegate.denied" && event["tidegate.policy"] == "login"));
    assert!(denials.iter().all(|event| event["tidegate.limit"] == "sliding-window 2/3600s"), "{denials:?}");
    assert!(!format!("{events:?}").contains("other"), "no key is told");
}

#[test]
fn memory_makes_no_span_and_a_failed_call_tells_its_code() {
    let kept = Kept::default();
    tracing::subscriber::with_default(kept.clone(), || {
        call_all(&limiter("memory://")).expect("calls");
        assert_eq!(kept.take(), Vec::<[String; 4]>::new());
        assert_eq!(kept.events.lock().expect("events").len(), 3);
        let builder =
            Limiter::builder().store("redis://:secret@127.0.0.1:1").on_store_error(tidegate::OnStoreError::Raise);
        let limiter = builder.build().expect("a limiter");
        limiter.check("5/minute", "k").expect_err("there is no server");
        let (name, fields) = kept.spans.lock().expect("spans")[0].clone();
        assert_eq!(
            (&*name, &*fields["tidegate.outcome"], &*fields["otel.status_code"]),
            ("tidegate.check", "error", "ERROR")
        );
        assert_eq!((&*fields["error.type"], &*fields["tidegate.policy"]), ("store_unavailable", "5/minute"));
        assert!(!format!("{fields:?}").contains("secret"), "{fields:?}");
    });
}
