//! The code that the benchmarks share.

use redis::Connection;

/// The CPU seconds of the server so far, as its `INFO` reports them.
///
/// # Panics
/// If the server does not answer.
pub fn server_cpu(connection: &mut Connection) -> f64 {
    let info: String = redis::cmd("INFO").arg("cpu").query(connection).expect("INFO answers");
    let field = |name: &str| -> f64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).expect("the field is there");
        line.trim().parse().expect("a number")
    };
    field("used_cpu_user:") + field("used_cpu_sys:")
}
