//! A call waits for its turn, is sent and observed.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate::host::OutgoingCall;
use tidegate::http::{Observation, ObservationScope};
use tidegate::{CheckOptions, Limiter, Policy};

use super::clients::{Failed, PacedClient, Setup};
use super::service::{Service, answer, text};
use super::{SECOND, contract, limiter};

contract! {
    a_call_that_would_wait_too_long_is_not_sent
    calls_wait_for_their_turns
    a_refusal_can_be_a_response
    what_a_response_says_holds_for_the_next_call
    without_a_policy_only_responses_limit
    learning_can_be_left_out
    a_caller_that_gives_up_leaves_the_line
    what_has_not_arrived_goes_back
    what_may_have_arrived_stays_charged
    a_call_that_never_fits_says_so
    what_all_callers_are_told_holds_for_every_key
}

const MARGIN: Duration = Duration::from_millis(50);

fn paced(policy: &str) -> Policy {
    Policy::parse(policy).expect("a policy").paced(MARGIN).expect("a margin")
}

async fn a_call_that_would_wait_too_long_is_not_sent<C: PacedClient>() {
    let (service, limiter) = (Service::serving().await, limiter());
    let client = C::paced(&limiter, Setup::of("1/minute")).expect("a client");
    assert_eq!(client.read(&service.url("/")).await.expect("a response"), (200, "hello".into()));
    let denial = client.read(&service.url("/")).await.expect_err("it would wait").denial();
    assert!(denial.retry_after() > Some(50 * SECOND));
    assert_eq!(denial.key(), service.key());
    assert_eq!(service.arrived().len(), 1);
}

async fn calls_wait_for_their_turns<C: PacedClient>() {
    let (service, limiter) = (Service::serving().await, limiter());
    let setup = Setup { timeout: 20 * SECOND, ..Setup::of("gcra 2/s burst 1") };
    let client = C::paced(&limiter, setup.clone()).expect("a client");
    let began = Instant::now();
    for _ in 0..3 {
        assert_eq!(client.read(&service.url("/")).await.expect("a response").0, 200);
    }
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!((service.arrived().len(), setup.waits.load(Ordering::Relaxed)), (3, 2));
}

async fn a_refusal_can_be_a_response<C: PacedClient>() {
    let (service, limiter) = (Service::serving().await, limiter());
    let client = C::paced(&limiter, Setup { respond: true, ..Setup::of("1/minute") }).expect("a client");
    client.read(&service.url("/")).await.expect("a response");
    let mut refused = client.get(&service.url("/")).await.expect("a response");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.headers["x-should-retry"], "false");
    let wait: u64 = refused.headers["retry-after"].to_str().expect("text").parse().expect("a number");
    assert!((50..=61).contains(&wait), "{wait}");
    let problem = super::clients::content::<C>(&mut refused.body).await;
    let problem: serde_json::Value = serde_json::from_slice(&problem).expect("a problem");
    assert_eq!(problem["error"]["message"], problem["detail"]);
    assert_eq!(service.arrived().len(), 1);
}

async fn what_a_response_says_holds_for_the_next_call<C: PacedClient>() {
    let service = Service::start(|_, _| answer(200, [("ratelimit", r#""api";r=0;t=30"#)])).await;
    let limiter = limiter();
    let client = C::paced(&limiter, Setup::of("100/minute")).expect("a client");
    assert_eq!(client.read(&service.url("/")).await.expect("a response").0, 200);
    let denial = client.read(&service.url("/")).await.expect_err("nothing is left").denial();
    assert!(denial.learned() && denial.retry_after() > Some(25 * SECOND), "{denial:?}");
    let seen = limiter.peek(&paced("100/minute"), &service.key(), 1).await.expect("a peek");
    assert!(seen.learned() && seen.remaining() == 0);
}

async fn without_a_policy_only_responses_limit<C: PacedClient>() {
    let service = Service::start(|number, _| match number {
        ..3 => text("hello"),
        _ => answer(429, [("retry-after", "30")]),
    });
    let service = service.await;
    let client = C::paced(&limiter(), Setup::learned()).expect("a client");
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(client.read(&service.url("/")).await.expect("a response").0);
    }
    assert_eq!(statuses, [200, 200, 429]);
    let denial = client.read(&service.url("/")).await.expect_err("it is blocked").denial();
    assert!(denial.retry_after() > Some(25 * SECOND));
    // The block counts for the origin that has answered.
    let other = Service::serving().await;
    assert_eq!(client.read(&other.url("/")).await.expect("a response").0, 200);
}

async fn learning_can_be_left_out<C: PacedClient>() {
    let service = Service::start(|_, _| answer(429, [("retry-after", "30")])).await;
    let client = C::paced(&limiter(), Setup { learn: false, ..Setup::of("100/minute") }).expect("a client");
    for _ in 0..2 {
        assert_eq!(client.read(&service.url("/")).await.expect("a response").0, 429);
    }
}

async fn a_caller_that_gives_up_leaves_the_line<C: PacedClient>() {
    let (service, limiter) = (Service::serving().await, limiter());
    let client = C::paced(&limiter, Setup { timeout: 600 * SECOND, ..Setup::of("1/minute") }).expect("a client");
    client.read(&service.url("/")).await.expect("a response");
    let waiting = tokio::spawn({
        let (client, url) = (client.clone(), service.url("/"));
        async move { client.read(&url).await.map(drop) }
    });
    while limiter.waiting(paced("1/minute"), &service.key()) == 0 {
        tokio::task::yield_now().await;
    }
    waiting.abort();
    assert!(waiting.await.is_err_and(|error| error.is_cancelled()));
    assert_eq!(limiter.waiting(paced("1/minute"), &service.key()), 0);
    assert_eq!(service.arrived().len(), 1);
}

async fn what_has_not_arrived_goes_back<C: PacedClient>() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let limiter = limiter();
    let client = C::paced(&limiter, Setup::of("2/minute")).expect("a client");
    for _ in 0..5 {
        assert!(matches!(client.read(&origin).await, Err(Failed::Client)));
    }
    let left = limiter.peek(&paced("2/minute"), &format!("out:{origin}"), 1).await.expect("a peek");
    assert_eq!(left.remaining(), 2);
}

async fn what_may_have_arrived_stays_charged<C: PacedClient>() {
    // The server takes the request and hangs up.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.readable().await;
            let _ = stream.try_read(&mut [0; 4_096]);
        }
    });
    let limiter = limiter();
    let client = C::paced(&limiter, Setup::of("5/minute")).expect("a client");
    assert!(matches!(client.read(&origin).await, Err(Failed::Client)));
    let left = limiter.peek(&paced("5/minute"), &format!("out:{origin}"), 1).await.expect("a peek");
    assert_eq!(left.remaining(), 4);
}

async fn a_call_that_never_fits_says_so<C: PacedClient>() {
    let service = Service::serving().await;
    let setup = Setup { tokens: Some(200), ..Setup::of("100 tokens/minute") };
    let client = C::paced(&limiter(), setup.clone()).expect("a client");
    let Err(Failed::Limiter(error)) = client.read(&service.url("/")).await else { panic!("it was sent") };
    assert_eq!(error.code(), "cost_invalid");
    assert!(error.message().contains("never admits a call of 200 tokens"), "{error}");
    let client = C::paced(&limiter(), Setup { respond: true, ..setup }).expect("a client");
    assert_eq!(client.read(&service.url("/")).await.expect("a response").0, 413);
    assert!(service.arrived().is_empty());
}

async fn what_all_callers_are_told_holds_for_every_key<C: PacedClient>() {
    let service = Service::start(|number, _| match number {
        1 => answer(429, [("retry-after", "30"), ("x-ratelimit-global", "true")]),
        _ => text("hello"),
    });
    let (service, limiter) = (service.await, limiter());
    let keyed = |key| C::paced(&limiter, Setup { key: Some(key), ..Setup::of("100/minute") }).expect("a client");
    assert_eq!(keyed("one").read(&service.url("/")).await.expect("a response").0, 429);
    let denial = keyed("two").read(&service.url("/")).await.expect_err("all are told").denial();
    assert!(denial.learned() && denial.retry_after() > Some(25 * SECOND), "{denial:?}");
    assert_eq!(denial.key(), service.key());
    // Another origin is free.
    let other = Service::serving().await;
    assert_eq!(keyed("two").read(&other.url("/")).await.expect("a response").0, 200);
    assert_eq!(service.arrived().len(), 1);
}

fn call<'a>(policy: &'a Policy, origin: Option<&str>, options: CheckOptions) -> OutgoingCall<&'a Policy> {
    OutgoingCall::new(policy, "k".to_owned(), origin.map(ToOwned::to_owned), options)
}

#[test]
fn a_thread_learns_of_a_service_that_refuses_all_callers() {
    let limiter = Limiter::builder().build().expect("a limiter");
    let policy = paced("5/minute");
    let (plain, shared) =
        (call(&policy, None, CheckOptions::default()), call(&policy, Some("s"), CheckOptions::default()));
    let at_once =
        |asked: &OutgoingCall<&Policy>, announces: bool| limiter.turn_at_once(asked, announces).expect("an answer");
    let turn = at_once(&plain, false).expect("memory admits it in one step");
    assert_eq!((turn.refused_by(), turn.waits(), turn.decision().remaining()), (None, false, 4));
    // These ask more than their own limits.
    assert!(at_once(&plain, true).is_none() && at_once(&shared, false).is_none());
    let held = paced("concurrency 1");
    assert!(at_once(&call(&held, None, CheckOptions::default()), false).is_none());

    let before = Duration::ZERO;
    assert!(limiter.refused_since(&shared, before).expect("an answer").is_none());
    let mut told = Observation::default();
    (told.retry_after, told.scope) = (Some(30 * SECOND), ObservationScope::All);
    limiter.learn(&shared, vec![told], None).expect("the store keeps it");
    let refused = limiter.refused_since(&shared, before).expect("an answer").expect("a refusal");
    assert!(refused.learned() && refused.retry_after() > Some(20 * SECOND));
    let turn = limiter.turn(&shared, Some(SECOND), false).expect("an answer");
    assert!(turn.is_refused_by_service() && !turn.waits(), "it has less time than the service demands");
    assert!(limiter.turn(&shared, None, false).expect("an answer").waits());
}

#[test]
fn limits_that_are_learned_know_no_classes() {
    let options = || CheckOptions { cost: 5, priority: Some("low".to_owned()), ..CheckOptions::default() };
    let learned = Policy::learned().expect("a policy");
    let asked = call(&learned, None, options()).options;
    assert_eq!((asked.cost, asked.priority), (5, None));
    let asked = call(&paced("5/minute"), None, options()).options;
    assert_eq!((asked.cost, asked.priority.as_deref()), (5, Some("low")));
}
