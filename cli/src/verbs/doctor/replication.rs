//! The role of a server, and how far its replicas are behind.

use super::finding::Finding;
use crate::number_text::bytes;
use crate::reply::Info;

/// A replica counts as behind from this many bytes or seconds on.
const BEHIND_BYTES: u64 = 1_000_000;
const BEHIND_SECONDS: u64 = 2;

/// The findings from the INFO of a server.
pub(super) fn examine(info: &Info, several: bool) -> Vec<Finding> {
    if info.get("role") == Some("slave") {
        let primary = match (info.get("master_host"), info.get("master_port")) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            _ => "its primary".to_owned(),
        };
        let message = "this is a replica, which refuses writes: no check can be counted here";
        return vec![
            Finding::problem("topology", message).advice(format!(
                "name {primary} in the store URL, or the sentinels (redis+sentinel://), which find it"
            )),
        ];
    }
    let replicas = info.numbered("slave");
    if replicas.is_empty() {
        return if several {
            let message = "a primary without a replica: if it is lost, its share of the keys is lost until it is back";
            vec![Finding::note("replication", message).advice("give it a replica")]
        } else {
            Vec::new()
        };
    }
    let written = info.number("master_repl_offset").unwrap_or(0);
    replicas.into_iter().map(|replica| lag(replica, written)).collect()
}

/// The finding about one replica, from the primary's INFO: `ip=…,port=…,state=online,offset=…,lag=…`.
fn lag(replica: &str, written: u64) -> Finding {
    let field = |name: &str| {
        replica.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
    };
    let address = format!("{}:{}", field("ip"), field("port"));
    if field("state") != "online" {
        return Finding::note("replication", format!("replica {address} is not online (state {})", field("state")))
            .advice("a failover to it would forget usage: read its log");
    }
    let behind = written.saturating_sub(field("offset").parse().unwrap_or(written));
    let seconds: u64 = field("lag").parse().unwrap_or(0);
    let message = format!("replica {address} is {} behind, last heard {seconds} s ago", bytes(behind as f64));
    if behind >= BEHIND_BYTES || seconds >= BEHIND_SECONDS {
        return Finding::note("replication", format!("{message}: a failover forgets that much usage"))
            .advice("check the network between them and the load of the replica");
    }
    Finding::ok("replication", message)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn roles_and_lags() {
        let levels = |text: &str, several| -> Vec<Level> {
            examine(&Info::from_text(text), several).into_iter().map(|finding| finding.level).collect()
        };
        assert_eq!(levels("role:slave\nmaster_host:h\nmaster_port:1", false), [Level::Problem]);
        assert_eq!(levels("role:master\nconnected_slaves:0", false), []);
        assert_eq!(levels("role:master", true), [Level::Note]);
        let replicas = "role:master\nmaster_repl_offset:5000000\n\
            slave0:ip=h,port=1,state=online,offset=4999990,lag=0\n\
            slave1:ip=h,port=2,state=online,offset=10,lag=1\n\
            slave2:ip=h,port=3,state=online,offset=5000000,lag=9\n\
            slave3:ip=h,port=4,state=wait_bgsave,offset=0,lag=0";
        assert_eq!(levels(replicas, true), [Level::Ok, Level::Note, Level::Note, Level::Note]);
    }
}
