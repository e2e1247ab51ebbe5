//! The client of the harness. `tests/servers/test_servers.py` tests the harness itself.

use std::path::Path;

use serde_json::json;
use tidegate_tests::servers::{Kind, Servers};

fn ping(port: u16) -> redis::RedisResult<String> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    redis::cmd("PING").query(&mut client.get_connection()?)
}

#[test]
fn servers_start_follow_commands_and_leave_nothing() {
    let servers = Servers::start_with(Kind::Single, json!({"databases": 2}));
    let port = servers.port(0);
    assert_eq!(servers.url(), format!("redis://127.0.0.1:{port}/0"));
    assert!(servers.url_of("unix").starts_with("redis+unix:///"));
    assert_eq!(ping(port).expect("it answers"), "PONG");

    assert_eq!(servers.command(0, &["SET", "k", "v"]), "OK");
    servers.stop(0);
    servers.cont(0);
    assert_eq!(servers.command(0, &["GET", "k"]), "v");
    servers.kill(0);
    assert!(ping(port).is_err(), "killed");
    servers.start_again(0);
    assert_eq!(servers.command(0, &["EXISTS", "k"]), 0);
    servers.restart(0);

    let dir = servers.json()["dir"].as_str().expect("a path").to_owned();
    assert!(Path::new(&dir).exists());
    drop(servers);
    assert!(!Path::new(&dir).exists());
    assert!(ping(port).is_err(), "gone");
}

#[test]
#[should_panic(expected = "unknown option 'tsl'")]
fn the_panic_says_why_a_server_cannot_start() {
    let _ = Servers::start_with(Kind::Single, json!({"tsl": true}));
}
