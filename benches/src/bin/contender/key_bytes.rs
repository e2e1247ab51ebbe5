//! The bytes that Redis takes for a key after some checks (MEMORY USAGE).

use std::time::Duration;

use redis::{Commands, Connection};
use tidegate::Limiter;

use crate::Measured;
use crate::arguments::Arguments;

fn bytes(connection: &mut Connection) -> u64 {
    let keys: Vec<Vec<u8>> = connection.keys("*").expect("KEYS answers");
    let usage = |key: &Vec<u8>| -> u64 {
        let mut command = redis::cmd("MEMORY");
        command.arg("USAGE").arg(key).arg("SAMPLES").arg(0).query(connection).expect("MEMORY USAGE answers")
    };
    keys.iter().map(usage).sum()
}

pub(crate) fn run(arguments: &Arguments) -> Measured {
    let url = arguments.text("url");
    let mut connection = redis::Client::open(url).and_then(|client| client.get_connection()).expect("a connection");
    let _: () = connection.flushall().expect("FLUSHALL");
    // The server's clock decides, as it does for users. With a clock of the caller, values have no narrow form.
    let limiter = Limiter::builder().store(url).timeout(Duration::from_secs(10)).build().expect("a limiter");
    let (checks, apart): (u64, u64) = (arguments.number("checks"), arguments.number("apart_us"));
    for _ in 0..checks {
        let decision = limiter.check(arguments.text("policy"), "user:1234567").expect("a decision");
        assert!(decision.allowed(), "a check is denied");
        std::thread::sleep(Duration::from_micros(apart));
    }
    Measured { value: bytes(&mut connection) as f64, decisions: checks, beside: Vec::new() }
}
