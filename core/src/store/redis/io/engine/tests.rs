use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use smallvec::smallvec;

use super::*;
use crate::error::ErrorKind;
use crate::process::log::Log;
use crate::store::panics::Caller;
use crate::store::redis::protocol::{CallState, PendingCall, Recipient, ServerDirectory};
use crate::store::redis::script::{Grouping, Request};
use crate::store::request::{Answer, Entry, Operation};
use crate::store::url::{Deployment, Endpoints, Login};

fn call() -> (EngineCall, Receiver<crate::error::Result<Answer>>) {
    let plan = crate::plan::Plan::of(&crate::policy::Policy::parse("5/minute").expect("a policy"));
    let entry = Entry { plan: &plan, key: "k", operation: Operation::charge(1) };
    let (sender, receiver) = channel();
    let caller = Caller::new(Box::new(move |result| {
        drop(sender.send(result));
        None
    }));
    let call = PendingCall {
        requests: smallvec![Request::new(&"tg".into(), &entry)],
        grouping: Grouping::Independent,
        time: None,
        slot: 0,
        state: CallState::new(Instant::now() + Duration::from_secs(9), false),
        recipient: Recipient::One(caller),
    };
    (EngineCall::Call(call), receiver)
}

#[test]
fn after_a_panic_every_call_is_told_and_the_next_is_served() {
    let endpoints = Endpoints {
        deployment: Deployment::Cluster(Vec::new()),
        login: Login::default(),
        certificates: None,
        follow: None,
        read_replicas: false,
        shown: "redis+cluster://nowhere".to_owned(),
    };
    let connector = Arc::new(Connector::new(&endpoints, Arc::new(Log::default())).expect("a connector"));
    let directory = Arc::new(ServerDirectory::new(endpoints, Duration::from_secs(9)));
    let queue = Mutex::new(CallQueue::default());
    let mut driver = Driver::new(Router::new(directory, "tg".into(), 9), connector);
    for _ in 0..2 {
        let (waiting, told) = call();
        queue.lock().calls.push_back(waiting);
        assert!(!driver.serve(&queue), "it waits for a topology");
        assert!(told.try_recv().is_err(), "the call waits");
        let (taken, told_too) = call();
        let result = driver.guarded(false, move |_| {
            let _taken = taken;
            panic!("a defect");
        });
        assert!(!result);
        for told in [told, told_too] {
            let error = told.try_recv().expect("the caller is told").expect_err("an error");
            assert_eq!(error.kind(), ErrorKind::StoreRejected);
        }
    }
}
