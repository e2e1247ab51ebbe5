//! The work of the layer for a request, from the first function of the application to the last thing that is given
//! back. The adapters of Python and Node answer the same requests, in `tests/transcripts`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::routing::get;
use http::{Response, StatusCode, response};
use http_body_util::BodyExt;
use serde_json::{Map, Value, json};
use tidegate::http::tower::{RateLimitLayer, RateLimitLayerBuilder, RequestKey};
use tidegate::{AsyncLimiter, Builder, Cost, ManualClock, Units};
use tokio_stream::StreamExt;

use super::{request, send};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../transcripts");
const ADDRESS: &str = "203.0.113.9";
const ADAPTER: &str = "tower";
/// Options that the layer does not have.
const UNKNOWN: [&str; 1] = ["hold_until"];

fn read(name: &str) -> Value {
    let text = std::fs::read_to_string(Path::new(FOLDER).join(name)).expect("it is there");
    serde_json::from_str(&text).expect("JSON")
}

/// The events while one case runs, a line for each.
#[derive(Clone)]
struct Recording {
    limiter: AsyncLimiter,
    policies: Arc<Map<String, Value>>,
    key: String,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Recording {
    fn of(case: &Value) -> Self {
        let file = std::env::temp_dir().join(format!("tidegate-{}.json", tidegate_tests::any_limiter::fresh_prefix()));
        std::fs::write(&file, json!({ "policies": case["policies"] }).to_string()).expect("a file");
        let clock = Arc::new(ManualClock::new(Duration::from_secs(1_704_067_200)));
        let builder = Builder::from_file(&file).expect("policies").clock(clock);
        std::fs::remove_file(&file).expect("a file");
        Self {
            limiter: builder.build_async().expect("a limiter"),
            policies: Arc::new(case["policies"].as_object().expect("a map").clone()),
            key: case["limit"]["key"]["returns"].as_str().unwrap_or(ADDRESS).to_owned(),
            lines: Arc::default(),
        }
    }

    fn add(&self, line: impl Into<String>) {
        self.lines.lock().expect("no panic").push(line.into());
    }

    /// The units left of each policy.
    async fn left(&self) -> String {
        let mut left = Vec::new();
        for (name, policy) in self.policies.iter() {
            let cost = if policy.to_string().contains("tokens") { Cost::from([("tokens", 1)]) } else { 1.into() };
            let peek = self.limiter.peek(name.as_str(), &self.key, cost).await.expect("a peek");
            let limits: Vec<_> = peek.limits().map(|limit| limit.remaining.to_string()).collect();
            left.push(format!("{name} {}", limits.join(" and ")));
        }
        left.join(", ")
    }

    /// A function that is called for a request, and returns this.
    fn function<G, T: Clone + Send + Sync + 'static>(
        &self,
        name: &'static str,
        answer: T,
    ) -> impl Fn(&G) -> T + Send + Sync + 'static {
        let recording = self.clone();
        move |_| {
            recording.add(name);
            answer.clone()
        }
    }

    /// The same for a response.
    fn told<T: Clone + Send + Sync + 'static>(
        &self,
        name: &'static str,
        answer: T,
    ) -> impl Fn(&response::Parts) -> T + Send + Sync + 'static {
        let recording = self.clone();
        move |response| {
            recording.add(format!("{name}, told of {}", response.status.as_u16()));
            answer.clone()
        }
    }

    async fn view(self, wanted: Value) -> Response<Body> {
        self.add(format!("view: {}", self.left().await));
        let status = wanted["status"]
            .as_u64()
            .map_or(StatusCode::OK, |status| StatusCode::from_u16(status as u16).expect("a status"));
        let body = match wanted["parts"].as_u64() {
            Some(parts) => Body::from_stream(tokio_stream::iter(1..=parts).then(move |number| {
                let recording = self.clone();
                async move {
                    recording.add(format!("part {number}: {}", recording.left().await));
                    Ok::<_, Infallible>("part")
                }
            })),
            None => Body::from("ok"),
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        response
    }

    fn layer(&self, limit: &Value) -> RateLimitLayerBuilder {
        let mut layer = RateLimitLayer::builder(&self.limiter);
        for (name, said) in limit.as_object().expect("a map") {
            let answer = &said["returns"];
            let text = || answer.as_str().map(str::to_owned);
            layer = match name.as_str() {
                "policy" if said.is_object() => layer.policy_by(self.function("policy", text())),
                "policy" => {
                    let names = said.as_array().cloned().unwrap_or_else(|| vec![said.clone()]);
                    names.iter().fold(layer, |layer, name| layer.policy(name.as_str().expect("a name")))
                }
                "key" => layer.key(RequestKey::from_request(self.function("key", text()))),
                "cost" if said.is_number() => layer.cost(said.as_u64().expect("a cost")),
                "cost" if answer.is_object() => layer.units_by(self.function("cost", units(answer))),
                "cost" => layer.cost_by(self.function("cost", answer.as_u64().expect("a cost"))),
                "meta" => layer.meta(self.function("meta", text())),
                "priority" => layer.priority_by(self.function("priority", text())),
                "skip" => layer.skip(self.function("skip", answer == true)),
                "refund_when" => layer.refund_when(self.told("refund_when", answer == true)),
                "settle" if answer.is_object() => layer.settle_units_at_end(self.told("settle", Some(units(answer)))),
                "settle" => layer.settle_at_end(self.told("settle", answer.as_u64())),
                "on_denied" => {
                    let recording = self.clone();
                    layer.on_denied(move |_, _| {
                        recording.add("on_denied");
                        Some(Response::new("slow down".into()))
                    })
                }
                other => panic!("{other}"),
            };
        }
        layer
    }
}

fn units(answer: &Value) -> Units {
    let units = answer.as_object().expect("a map").iter();
    units.map(|(name, count)| (name.clone(), count.as_u64().expect("a number"))).collect()
}

async fn transcript(case: &Value) -> Vec<String> {
    let limit = &case["limit"];
    if let Some(option) = UNKNOWN.iter().find(|option| limit.get(option).is_some()) {
        return vec![format!("there is no option {option}")];
    }
    let recording = Recording::of(case);
    let mut holds = Vec::new();
    for (policy, cost) in case["held"].as_object().into_iter().flatten() {
        let cost = cost.as_u64().expect("a cost");
        let answer = recording.limiter.hold(policy.as_str(), &recording.key, cost).await.expect("an answer");
        holds.push(answer.held().expect("a hold"));
    }
    let layer = match recording.layer(limit).build() {
        Ok(layer) => layer,
        Err(error) => return vec![format!("{} where the limit is written", error.code())],
    };
    for asked in case["requests"].as_array().expect("a list") {
        let (view, wanted) = (recording.clone(), asked["view"].clone());
        let router = Router::new().route("/", get(move || view.clone().view(wanted.clone())));
        let peer = MockConnectInfo(SocketAddr::new(ADDRESS.parse().expect("an address"), 4_711));
        let response = send(&router.layer(layer.clone()).layer(peer), request()).await;
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        recording.add(answered(&head, &String::from_utf8_lossy(&body)));
        // A settlement goes on without the client.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        recording.add(format!("after: {}", recording.left().await));
    }
    drop(holds);
    let stats = recording.limiter.stats();
    let counts = stats
        .policies
        .iter()
        .map(|(name, counts)| format!("{name} {} allowed and {} denied", counts.allowed, counts.denied));
    recording.add(format!("counted: {}", counts.collect::<Vec<_>>().join(", ")));
    recording.lines.lock().expect("no panic").clone()
}

fn answered(head: &response::Parts, body: &str) -> String {
    let mut line = head.status.as_u16().to_string();
    for name in ["RateLimit-Policy", "RateLimit", "Retry-After"] {
        if let Some(value) = head.headers.get(name) {
            line += &format!(" {name}: {}", value.to_str().expect("ASCII"));
        }
    }
    if head.status == StatusCode::TOO_MANY_REQUESTS && body.contains("violated-policies") {
        line += " problem";
    }
    line
}

/// The transcript of each case, with its name.
async fn transcripts() -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for case in read("requests.json")["cases"].as_array().expect("a list") {
        found.push((case["name"].as_str().expect("a name").to_owned(), transcript(case).await));
    }
    found
}

fn is_of_this(group: &Value) -> bool {
    group["adapters"].as_array().is_some_and(|adapters| adapters.contains(&json!(ADAPTER)))
}

#[tokio::test]
async fn the_layer_does_what_its_transcripts_say() {
    let known = read("transcripts.json");
    for (name, lines) in transcripts().await {
        let group = known[&name].as_array().and_then(|groups| groups.iter().find(|group| is_of_this(group)));
        assert_eq!(group.expect("it is recorded")["lines"], json!(lines), "{name}");
    }
}

/// Writes them: the README beside them has the command.
#[tokio::test]
#[ignore = "a program"]
async fn write_transcripts() {
    let mut known = read("transcripts.json");
    for (name, lines) in transcripts().await {
        let mut groups = known[&name].as_array().cloned().unwrap_or_default();
        for group in &mut groups {
            group["adapters"].as_array_mut().expect("a list").retain(|adapter| adapter != ADAPTER);
        }
        match groups.iter_mut().find(|group| group["lines"] == json!(lines)) {
            Some(same) => same["adapters"].as_array_mut().expect("a list").push(json!(ADAPTER)),
            None => groups.push(json!({ "adapters": [ADAPTER], "lines": lines })),
        }
        groups.retain(|group| group["adapters"] != json!([]));
        known[&name] = groups.into();
    }
    let text = serde_json::to_string_pretty(&known).expect("JSON");
    std::fs::write(Path::new(FOLDER).join("transcripts.json"), text + "\n").expect("a file");
}
