//! A resolver that never answers: calls keep their deadline, and threads do not pile up.

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use tidegate::{ErrorKind, Limiter, OnStoreError};
use tidegate_tests::threads;

const INSIDE: &str = "TIDEGATE_TEST_SILENT_RESOLVER";
const TIMEOUT: Duration = Duration::from_millis(100);
/// The exit code if this system lets no test make a separate network.
const NOT_ALLOWED: i32 = 77;

/// The same test in a process with a separate network. The only name server there is silent.
#[test]
fn a_silent_name_server_keeps_few_threads_and_no_call_waiting() {
    if std::env::var_os(INSIDE).is_some() {
        return calls_with_a_silent_name_server();
    }
    let script = format!(
        "ip link set lo up && echo nameserver 127.0.0.1 >$0/resolv.conf && mount --bind $0/resolv.conf /etc/resolv.conf \
         || exit {NOT_ALLOWED}; exec \"$1\" --exact name_lookups::a_silent_name_server_keeps_few_threads_and_no_call_waiting --nocapture"
    );
    let folder = std::env::temp_dir().join(format!("tidegate-resolver-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let test = std::env::current_exe().expect("this test");
    let ran = Command::new("unshare")
        .args(["--map-root-user", "--mount", "--net", "sh", "-c", &script])
        .args([folder.as_os_str(), test.as_os_str()])
        .env(INSIDE, "1")
        .output();
    std::fs::remove_dir_all(&folder).expect("the folder");
    let Ok(ran) = ran else { return println!("skipped: there is no unshare here") };
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    if ran.status.code() == Some(NOT_ALLOWED) || said.starts_with("unshare:") {
        return println!("skipped: no network of its own for a test here: {said}");
    }
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

fn calls_with_a_silent_name_server() {
    let server = UdpSocket::bind("127.0.0.1:53").expect("the port of name servers");
    let url = "redis+sentinel://a.test:26379,b.test:26379,c.test:26379/mymaster";
    let builder = || Limiter::builder().store(url).timeout(TIMEOUT).on_store_error(OnStoreError::Raise);
    // Several limiters, each with a breaker that probes.
    let limiters: Vec<Limiter> = (0..4).map(|_| builder().build().expect("a limiter")).collect();
    let began = Instant::now();
    let (mut most, mut all) = (0, 0);
    while began.elapsed() < Duration::from_secs(4) {
        for limiter in &limiters {
            let called = Instant::now();
            let error = limiter.check("5/s", "k").expect_err("no name is known");
            assert!(matches!(error.kind(), ErrorKind::StoreTimeout | ErrorKind::StoreUnavailable), "{error}");
            assert!(called.elapsed() < TIMEOUT + Duration::from_secs(1), "{:?}", called.elapsed());
        }
        most = most.max(threads::named("tidegate-resol").len());
        all = all.max(threads::named("tidegate").len());
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut question = [0; 512];
    assert!(server.recv(&mut question).is_ok_and(|length| length > 12), "the resolver asked this server");
    println!("{most} threads look names up, {all} in all");
    assert!(most > 0 && most <= 3, "{most} threads look up three names");
    assert!(all < 64, "{all} threads for four limiters");
}
