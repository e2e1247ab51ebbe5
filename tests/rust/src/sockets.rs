//! The TCP connections of this process, as Linux lists them.

use std::collections::HashSet;

/// The state of a connection that neither side has ended, in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";

/// The number of open connections to a port of this machine that the other side has not ended, as far as Linux knows.
/// `None` if the system has no such list.
#[must_use]
pub fn open_to(port: u16) -> Option<usize> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").ok()?;
    let own: HashSet<String> = std::fs::read_dir("/proc/self/fd")
        .ok()?
        .flatten()
        .filter_map(|file| std::fs::read_link(file.path()).ok()?.to_str()?.strip_prefix("socket:[").map(str::to_owned))
        .filter_map(|inode| Some(inode.strip_suffix(']')?.to_owned()))
        .collect();
    let remote = format!(":{port:04X}");
    let is_open = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields[..], [_, _, to, ESTABLISHED, _, _, _, _, _, inode, ..]
            if to.ends_with(&remote) && own.contains(inode))
    };
    Some(table.lines().filter(is_open).count())
}
