//! Redirects are calls. The layer of tower follows none. The middleware of reqwest follows them if it is configured to.

use bytes::Bytes;
use http::{Method, Request};
use tidegate::Policy;
use tidegate::http::reqwest::Pace;

use super::clients::{PacedClient, ReqwestClient, Setup, TowerClient};
use super::service::{Service, answer, text};
use super::{SECOND, limiter};

const POLICY: &str = "100/minute";

async fn used(limiter: &tidegate::AsyncLimiter, service: &Service) -> u64 {
    let policy = Policy::parse(POLICY).expect("a policy").paced(SECOND / 20).expect("a margin");
    100 - limiter.peek(&policy, &service.key(), 1).await.expect("a peek").remaining()
}

/// Redirects every request that is not for the target.
async fn redirecting(status: u16, to: String) -> Service {
    Service::start(
        move |_, arrived| {
            if arrived.path == "/target" { text("here") } else { answer(status, [("location", &to)]) }
        },
    )
    .await
}

fn post(url: &str) -> Request<Bytes> {
    let request = Request::post(url).header("authorization", "secret").header("content-type", "text/plain");
    request.body("content".into()).expect("a request")
}

#[tokio::test]
async fn the_layer_hands_redirects_on() {
    let (service, limiter) = (redirecting(302, "/target".to_owned()).await, limiter());
    let client = TowerClient::paced(&limiter, Setup::of(POLICY)).expect("a client");
    assert_eq!(client.get(&service.url("/")).await.expect("a response").status, 302);
    assert_eq!(used(&limiter, &service).await, 1);
}

#[tokio::test]
async fn each_redirect_is_a_call_to_its_origin() {
    let target = Service::start(|_, _| answer(200, [("ratelimit", r#""api";r=0;t=30"#)])).await;
    let service = redirecting(302, target.url("/target")).await;
    let limiter = limiter();
    let client = ReqwestClient::paced(&limiter, Setup::of(POLICY)).expect("a client");
    let answered = client.send(post(&service.url("/"))).await.expect("a response");
    assert_eq!(answered.body.url().as_str(), target.url("/target"));
    assert_eq!(used(&limiter, &service).await, 1);
    let [arrived] = &target.arrived()[..] else { panic!("one request arrives") };
    assert_eq!((&arrived.method, &arrived.body[..]), (&Method::GET, &b""[..]));
    assert!(!arrived.headers.contains_key("authorization") && !arrived.headers.contains_key("content-type"));
    // The target's response counts for the target alone.
    assert_eq!(used(&limiter, &target).await, 100);
}

#[tokio::test]
async fn a_redirect_can_keep_method_and_body() {
    for (status, method, body) in
        [(303, Method::GET, ""), (307, Method::POST, "content"), (308, Method::POST, "content")]
    {
        let service = redirecting(status, "/target".to_owned()).await;
        let client = ReqwestClient::paced(&limiter(), Setup::of(POLICY)).expect("a client");
        assert_eq!(client.send(post(&service.url("/"))).await.expect("a response").status, 200);
        let [_, arrived] = &service.arrived()[..] else { panic!("two requests arrive") };
        assert_eq!((&arrived.method, &arrived.body[..]), (&method, body.as_bytes()));
        assert_eq!(arrived.headers["authorization"], "secret");
    }
}

#[tokio::test]
async fn redirects_end() {
    let service = redirecting(302, "/again".to_owned()).await;
    let client = ReqwestClient::paced(&limiter(), Setup::of(POLICY)).expect("a client");
    assert_eq!(client.read(&service.url("/")).await.expect("a response").0, 302);
    assert_eq!(service.arrived().len(), 6);
}

#[tokio::test]
async fn a_key_is_that_of_the_origin_that_was_asked() {
    for follows_itself in [false, true] {
        let target = Service::start(|_, _| answer(429, [("retry-after", "60")])).await;
        let (service, limiter) = (redirecting(302, target.url("/target")).await, limiter());
        let policy = Policy::parse(POLICY).expect("a policy").paced(SECOND / 20).expect("a margin");
        let redirect = if follows_itself { Default::default() } else { reqwest::redirect::Policy::none() };
        let client = reqwest::Client::builder().no_proxy().redirect(redirect).build().expect("a client");
        let pace = Pace::builder(&limiter).policy(POLICY).key("account").redirects(5).build().expect("a middleware");
        let client = reqwest_middleware::ClientBuilder::new(client).with(pace).build();
        assert_eq!(client.get(service.url("/")).send().await.expect("a response").status(), 429);
        // The key of the account is free, because the target's response counts for the target alone.
        let seen = limiter.peek(&policy, "out:account", 1).await.expect("a peek");
        assert_eq!((seen.allowed(), seen.remaining()), (true, 99), "{follows_itself}");
        assert!(!limiter.peek(&policy, &target.key(), 1).await.expect("a peek").allowed());
        limiter.unblock(&policy, &target.key()).await.expect("free again");
        assert_eq!(used(&limiter, &target).await, 1);
    }
}

#[tokio::test]
async fn a_redirect_that_the_client_follows_is_counted() {
    let target = Service::start(|_, _| answer(200, [("ratelimit", r#""api";r=0;t=30"#)])).await;
    let (service, limiter) = (redirecting(302, target.url("/target")).await, limiter());
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let pace = Pace::new(&limiter, POLICY).expect("a middleware");
    let client = reqwest_middleware::ClientBuilder::new(client).with(pace).build();
    client.get(service.url("/")).send().await.expect("a response");
    assert_eq!((used(&limiter, &service).await, used(&limiter, &target).await), (1, 100));
}
