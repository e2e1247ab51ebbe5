//! The contenders of `make bench` that are written in Rust.
//!
//! A process is one round of one contender. Its arguments are `name=value`. It prints one line of JSON. `value` is the
//! figure of the round. `decisions` is the number of decisions from start to end, so that the caller can divide the
//! CPU time of the server by it. `beside` has further figures by name.

mod arguments;
mod http_load;
mod in_memory;
mod key_bytes;
mod lease;
mod redis_checks;
mod traffic;

use arguments::Arguments;

/// The figure of a round.
struct Measured {
    value: f64,
    decisions: u64,
    beside: Vec<(&'static str, f64)>,
}

/// The CPU seconds of this process so far, with the threads that have ended, in steps of a hundredth.
fn process_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let (_, fields) = stat.rsplit_once(')').expect("the name of the program");
    let ticks = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().expect("a number"));
    ticks.sum::<f64>() / 100.0
}

fn main() {
    let arguments = Arguments::of_process();
    let measured = match arguments.text("mode") {
        "redis" => redis_checks::run(&arguments),
        "fill" => redis_checks::fill(&arguments),
        "traffic" => traffic::run(&arguments),
        "memory" => in_memory::speed(&arguments),
        "memory-bytes" => in_memory::bytes(&arguments),
        "lease" => lease::run(&arguments),
        "key-bytes" => key_bytes::run(&arguments),
        "http-load" => http_load::run(&arguments),
        other => panic!("mode={other} is unknown"),
    };
    let beside: Vec<String> = measured.beside.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    let (value, decisions, beside) = (measured.value, measured.decisions, beside.join(", "));
    println!("{{\"value\": {value}, \"decisions\": {decisions}, \"beside\": {{{beside}}}}}");
}
