//! Four processes with 50 callers each, which take turns of one key.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate::{AsyncLimiter, Limiter};
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};

const POLICY: &str = "gcra 200/s burst 1";
const PROCESSES: u64 = 4;
const CALLERS: u64 = 50;
/// The callers come one after the other, so far apart that their order is known.
const ARRIVALS: Duration = Duration::from_millis(2);

/// The times of one caller by the machine's clock, in microseconds: its request, the store's moment, and its admission.
type Row = [u64; 3];

fn micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

/// One of the processes: the child of the tests below.
#[test]
#[ignore = "it is a process of the other tests here"]
fn a_process_of_callers() {
    let setting = std::env::var("TIDEGATE_TURNS").expect("the other tests start it");
    let words: Vec<&str> = setting.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    let (url, process, begins, cancelled) = (words[0], number(1), number(2), number(3));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let builder = Limiter::builder().store(url).prefix("turns").timeout(Duration::from_secs(10));
        let limiter: AsyncLimiter = builder.build_async().expect("a limiter");
        limiter.ping().await.expect("the server answers");
        let callers: Vec<_> = (0..CALLERS)
            .map(|place| place * PROCESSES + process)
            .map(|place| {
                let limiter = limiter.clone();
                let random = &mut Random::new(place);
                let gives_up = random.below(100) < cancelled;
                let after = Duration::from_millis(random.below(300));
                tokio::spawn(async move {
                    let arrives = begins + place * ARRIVALS.as_micros() as u64;
                    tokio::time::sleep(Duration::from_micros(arrives.saturating_sub(micros()))).await;
                    // A machine that is busy holds callers up.
                    let asked = micros();
                    let call = limiter.acquire(POLICY, "k", 1, Some(Duration::from_secs(30)));
                    let decision = if gives_up { tokio::time::timeout(after, call).await.ok()? } else { call.await };
                    let decision = decision.expect("a decision");
                    assert!(decision.allowed());
                    Some([asked, decision.at().as_micros() as u64, micros()])
                })
            })
            .collect();
        for caller in callers {
            match caller.await.expect("it ends") {
                Some([asked, at, went]) => println!("row {asked} {at} {went}"),
                None => println!("gone"),
            }
        }
    });
}

fn processes(url: &str, cancelled: u64) -> (Vec<Row>, usize) {
    let begins = micros() + 1_500_000;
    let start = |process: u64| -> Child {
        Command::new(std::env::current_exe().expect("this program"))
            .args(["turns::over_processes::a_process_of_callers", "--exact", "--ignored", "--nocapture"])
            .env("TIDEGATE_TURNS", format!("{url} {process} {begins} {cancelled}"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process")
    };
    let children: Vec<Child> = (0..PROCESSES).map(start).collect();
    let (mut rows, mut gone) = (Vec::new(), 0);
    for mut child in children {
        let mut text = String::new();
        child.stdout.take().expect("its output").read_to_string(&mut text).expect("it is text");
        assert!(child.wait().expect("it ends").success(), "{text}");
        for line in text.lines() {
            if let Some(row) = line.strip_prefix("row ") {
                let numbers: Vec<u64> = row.split(' ').map(|number| number.parse().expect("a number")).collect();
                rows.push([numbers[0], numbers[1], numbers[2]]);
            }
            gone += usize::from(line == "gone");
        }
    }
    rows.sort_by_key(|row| row[1]);
    (rows, gone)
}

/// How late a caller of a busy machine may come to the store, in microseconds.
const HELD_UP: u64 = 50_000;

/// How often a caller went before the interval of the previous one was over, by the time of the store.
fn too_early(rows: &[Row]) -> usize {
    rows.windows(2).filter(|pair| pair[1][1] - pair[0][1] < 5_000).count()
}

#[test]
fn the_order_of_admission_is_the_order_of_arrival() {
    let redis = Servers::start(Kind::Single);
    let before = redis.calls(0, "evalsha");
    let (rows, _) = processes(redis.url(), 0);
    let calls = redis.calls(0, "evalsha") - before;
    assert_eq!(rows.len() as u64, PROCESSES * CALLERS);
    // By the clock of the machine none goes before its moment.
    assert_eq!(rows.iter().filter(|row| row[2] < row[1]).count(), 0);
    assert_eq!(too_early(&rows), 0, "never above the rate");
    let asked: Vec<u64> = rows.iter().map(|row| row[0]).collect();
    // All of them ask within 400 ms. A process that the machine holds up after its look at the clock comes late. In a
    // random order about 75 would be that late.
    let late = asked.windows(2).filter(|pair| pair[0] > pair[1] + HELD_UP).count();
    println!("{calls} calls, {late} of {} out of order", asked.len());
    // One write each, and a read of those that slept for more than 50 ms. The script is loaded once.
    assert!(calls <= 2 * PROCESSES * CALLERS + PROCESSES, "{calls} calls");
    assert!(late <= 10, "{asked:?}");
    let lateness = rows.iter().map(|row| row[2] - row[1]).max().unwrap_or(0);
    println!("the latest went {lateness} µs after its moment");
}

#[test]
fn what_cancellations_lose_is_little() {
    let redis = Servers::start(Kind::Single);
    let began = Instant::now();
    let (rows, gone) = processes(redis.url(), 20);
    assert_eq!(rows.len() + gone, (PROCESSES * CALLERS) as usize);
    assert_eq!(too_early(&rows), 0, "never above the rate");
    let (first, last) = (rows.first().expect("a row")[1], rows.last().expect("a row")[1]);
    let turns = (last - first) / 5_000 + 1;
    println!(
        "{gone} of {} gave up; {} turns were used of {turns} until the last, {} were lost; {:?}",
        PROCESSES * CALLERS,
        rows.len(),
        turns - rows.len() as u64,
        began.elapsed()
    );
    // A turn may be lost if no later caller of the process waits: at most one for each that gave up.
    assert!(turns - rows.len() as u64 <= gone as u64);
}
