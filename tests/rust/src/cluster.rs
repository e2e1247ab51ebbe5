//! What tests do to a cluster: they read the identity of a node, and move slots.

use crate::servers::Servers;

/// Primaries and replicas.
pub const NODES: usize = 6;

/// The identity of a node in its cluster.
///
/// # Panics
/// When it does not answer.
#[must_use]
#[track_caller]
pub fn identity(cluster: &Servers, node: usize) -> String {
    cluster.command(node, &["CLUSTER", "MYID"]).as_str().expect("a name").to_owned()
}

/// Moves a slot and its keys to another node, one key at a time, so that the slot is split for a while.
///
/// # Panics
/// When a node refuses a command.
#[track_caller]
pub fn move_slot(cluster: &Servers, slot: u16, from: usize, to: usize) {
    let (number, from_id, to_id) = (slot.to_string(), identity(cluster, from), identity(cluster, to));
    let (user, password) = cluster.control();
    cluster.command(to, &["CLUSTER", "SETSLOT", &number, "IMPORTING", &from_id]);
    cluster.command(from, &["CLUSTER", "SETSLOT", &number, "MIGRATING", &to_id]);
    let mut source = cluster.connection(from);
    loop {
        let mut ask = redis::cmd("CLUSTER");
        let keys: Vec<Vec<u8>> = ask.arg("GETKEYSINSLOT").arg(slot).arg(1).query(&mut source).expect("its keys");
        let Some(key) = keys.first() else { break };
        let mut migrate = redis::cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(cluster.port(to)).arg("").arg(0).arg(5_000).arg("REPLACE");
        migrate.arg("AUTH2").arg(user).arg(password).arg("KEYS").arg(key);
        migrate.exec(&mut source).expect("the key moves");
    }
    for node in [to, from] {
        cluster.command(node, &["CLUSTER", "SETSLOT", &number, "NODE", &to_id]);
    }
}
