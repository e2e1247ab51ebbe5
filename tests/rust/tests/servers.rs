//! The client of the harness; what the harness itself does is tested in `tests/servers/test_servers.py`.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;

use serde_json::json;
use tidegate_tests::servers::{Kind, Servers};

fn ping(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"PING\r\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line)
}

#[test]
fn servers_start_follow_commands_and_leave_nothing() {
    let servers = Servers::start_with(Kind::Single, json!({"databases": 2}));
    let port = servers.port(0);
    assert_eq!(servers.url(), format!("redis://127.0.0.1:{port}/0"));
    assert!(servers.url_of("unix").starts_with("redis+unix:///"));
    assert_eq!(ping(port).expect("it answers"), "+PONG\r\n");

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
