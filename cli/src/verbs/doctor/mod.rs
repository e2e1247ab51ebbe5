//! `tidegate doctor`: examines a store and gives advice for each finding. The number of commands and the time are
//! bounded, and no command makes a server look at all its keys.

mod clock;
mod finding;
mod memory;
mod permissions;
mod postgres;
mod releases;
mod replication;
mod version;

use clap::Args;
use serde::Serialize;
use serde_json::json;
#[cfg(unix)]
use tidegate::host::{KeyNames, StoredFile};
use tidegate::host::{ServerAddress, ServerConnection, StoreServers};
use tidegate::{Error, PolicyFile};

use crate::reply::Info;
use crate::store_options::{ChosenStore, StoreOptions};
use crate::terminal::{BOLD, DIM, paint};
use crate::{Outcome, Output, Result, invalid};
use finding::{Finding, Level};
use permissions::Needs;
use tidegate_simulate::text::counted;

/// The most servers of a cluster that are examined one by one.
const MAX_SERVERS: usize = 64;
/// The difference between the clocks of two servers that is worth a note, in seconds.
const CLOCKS_APART: f64 = 1.0;

#[derive(Debug, Args)]
#[command(after_help = "The exit code is 0 without problems, 1 with a problem, and 2 if the store cannot be asked.

Examples:
  $ tidegate doctor --store redis://localhost:6379
  $ tidegate doctor --policies tidegate.yaml --store redis://localhost:6379 --json")]
pub(crate) struct Doctor {
    #[command(flatten)]
    store: StoreOptions,
}

/// The findings about one store.
#[derive(Serialize)]
struct StoreReport {
    store: String,
    kind: &'static str,
    findings: Vec<Finding>,
    /// True if the store, or one of its servers, could be asked.
    #[serde(rename = "asked")]
    was_asked: bool,
}

impl Doctor {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome> {
        let file = self.store.policies.read()?;
        let store = self.store.chosen(file.as_ref());
        if store.is_memory() {
            return Err(invalid(
                "memory:// is in each process and has no server to examine: name a store with --store redis://…, \
                 TIDEGATE_STORE, or `store:` of --policies FILE",
            ));
        }
        let mut reports = Vec::new();
        #[cfg(unix)]
        if let Some(url) = store.file() {
            reports.push(StoreReport::of_file(url, self.store.prefix(&store), self.store.timeout));
            return Ok(report(&reports, output));
        }
        if let Some(url) = store.postgres() {
            let mut report = StoreReport::of_table(url, self.store.prefix(&store), self.store.timeout);
            if report.was_asked {
                report.findings.push(served(url, &store.prefix, &self.store));
            }
            reports.push(report);
            return Ok(self::report(&reports, output));
        }
        for (url, servers) in store.all().zip(store.servers(self.store.timeout)?) {
            output.progress(&format!("examining {} …", servers.shown()));
            let mut report = StoreReport::of(&servers, file.as_ref(), self.store.prefix(&store));
            if report.was_asked {
                report.findings.push(served(url, &store.prefix, &self.store));
            }
            reports.push(report);
        }
        Ok(report(&reports, output))
    }
}

/// Shows the findings, and returns the outcome of the command.
fn report(reports: &[StoreReport], output: &mut Output) -> Outcome {
    let count =
        |level| reports.iter().flat_map(|report| &report.findings).filter(|finding| finding.level == level).count();
    let (problems, notes) = (count(Level::Problem), count(Level::Note));
    if output.is_json() {
        output.json(&json!({"stores": reports, "problems": problems, "notes": notes}));
    } else {
        reports.iter().for_each(|report| report.show(output));
        output.line(match (problems, notes) {
            (0, 0) => "no problems".to_owned(),
            (0, _) => format!("no problems, {notes} to know"),
            _ => format!("{}, {notes} to know", counted(problems, "problem")),
        });
    }
    match (reports.iter().all(|report| report.was_asked), problems) {
        (false, _) => Outcome::Invalid,
        (true, 0) => Outcome::Done,
        (true, _) => Outcome::Negative,
    }
}

/// Examines if a call goes through. A ping of the limiter counts a separate key on every primary.
fn served(url: &str, prefix: &str, options: &StoreOptions) -> Finding {
    let store = ChosenStore { urls: vec![url.to_owned()], rollout: None, prefix: prefix.to_owned() };
    match options.builder(&store).and_then(|builder| builder.build()?.ping()) {
        Ok(()) => Finding::ok("a check", "every primary counts a check"),
        Err(error) => Finding::problem("a check", format!("{error} [{}]", error.code()))
            .advice("the findings above name the reason"),
    }
}

impl StoreReport {
    /// Examines if a file that processes share can be used and is whole.
    #[cfg(unix)]
    fn of_file(url: &str, prefix: &str, timeout: std::time::Duration) -> Self {
        let file = StoredFile::open(url, &KeyNames::from(prefix), timeout);
        let examined = file.and_then(|file| file.examine());
        let finding = match &examined {
            Ok(keys) => Finding::ok("file", format!("every part of it is whole; it has {}", counted(*keys, "key"))),
            Err(error) => Finding::problem("file", format!("{error} [{}]", error.code())),
        };
        let (store, is_damaged) =
            (tidegate::host::without_secrets(url), |error: &Error| error.code() == "store_rejected");
        let was_asked = examined.as_ref().err().is_none_or(is_damaged);
        Self { store, kind: "file", findings: vec![finding], was_asked }
    }

    fn of(servers: &StoreServers, file: Option<&PolicyFile>, prefix: &str) -> Self {
        let mut report =
            Self { store: servers.shown().to_owned(), kind: servers.kind(), findings: Vec::new(), was_asked: false };
        report.findings.extend(transport(servers));
        let shards = match servers.shards() {
            Ok(shards) => shards,
            Err(error) => {
                let found = unreachable(&error);
                let lacks_command = servers.kind() == "cluster" && error.message().contains("NOPERM");
                let line = || permissions::line_for(servers.user().unwrap_or("default"), None, &permissions::CLUSTER);
                report.findings.push(if lacks_command { found.advice(line()) } else { found });
                return report;
            }
        };
        let needs = Needs {
            prefix,
            policies: file.map(PolicyFile::policies),
            user: servers.user(),
            is_cluster: servers.kind() == "cluster",
            reads_replicas: servers.reads_replicas(),
            has_several: servers.kind() != "single",
        };
        let (mut clocks, mut replicas): (Vec<f64>, usize) = (Vec::new(), 0);
        for shard in shards.iter().take(MAX_SERVERS) {
            let examined = servers.connect(&shard.primary).and_then(|mut connection| examine(&mut connection, &needs));
            match examined {
                Ok(examined) => {
                    report.was_asked = true;
                    clocks.extend(examined.clock_ahead);
                    replicas += examined.replicas.unwrap_or(shard.replicas.len());
                    report.add(examined.findings, &shard.primary, &needs);
                }
                Err(error) => report.add(vec![unreachable(&error)], &shard.primary, &needs),
            }
            for replica in &shard.replicas {
                let found =
                    servers.connect(replica).and_then(|mut connection| examine_replica(&mut connection, &needs));
                report.add(found.unwrap_or_else(|error| vec![unready(&error)]), replica, &needs);
            }
        }
        if shards.len() > MAX_SERVERS {
            let message = format!("the first {MAX_SERVERS} of {} primaries were examined", shards.len());
            report.findings.push(Finding::note("topology", message));
        }
        let apart = clocks.iter().copied().fold(f64::MIN, f64::max) - clocks.iter().copied().fold(f64::MAX, f64::min);
        if clocks.len() > 1 && apart >= CLOCKS_APART {
            let message = format!("the clocks of the servers are up to {apart:.1} s apart");
            report.findings.push(Finding::note("clock", message).advice("run NTP on all of them"));
        }
        if report.was_asked {
            let (primaries, replicas) = (counted(shards.len(), "primary"), counted(replicas, "replica"));
            let topology = match servers.kind() {
                "cluster" => format!("a cluster of {primaries} and {replicas}"),
                "sentinel" => format!("a primary that sentinels watch, and {replicas}"),
                _ => "one server".to_owned(),
            };
            report.findings.insert(0, Finding::ok("reachable", topology));
        }
        report.findings = Finding::join_equal(report.findings);
        report
    }

    /// Adds the findings about a server, which they name if there are several.
    fn add(&mut self, mut findings: Vec<Finding>, server: &ServerAddress, needs: &Needs<'_>) {
        if needs.has_several {
            findings.iter_mut().for_each(|finding| finding.server = Some(server.to_string()));
        }
        self.findings.extend(findings);
    }

    fn show(&self, output: &mut Output) {
        output.line(format!("{}  {}", paint(BOLD, &self.store), paint(DIM, self.kind)));
        self.findings.iter().for_each(|finding| finding.show(output));
        output.line("");
    }
}

/// A note if others can read the keys and the password on the network.
fn transport(servers: &StoreServers) -> Option<Finding> {
    let message = "keys, and the password, cross the network in plain text";
    let advice = if servers.follows_any() {
        "use TLS (rediss…://), and list with follow=… the hosts that servers may name: any of them gets the password"
    } else {
        "use TLS: the scheme begins with rediss or valkeys"
    };
    servers.is_readable().then(|| Finding::note("transport", message).advice(advice))
}

fn unreachable(error: &Error) -> Finding {
    Finding::problem("reachable", format!("{error} [{}]", error.code()))
}

/// The finding about a replica that cannot be asked. If it refuses the user now, it also will as a primary.
fn unready(error: &Error) -> Finding {
    let message = format!("{error} [{}]", error.code());
    if error.code() == "store_rejected" {
        Finding::problem("replica", format!("{message}: after a failover to it no check is counted"))
            .advice("ACLs and passwords are not replicated: give every server the same ACL file and configuration")
    } else {
        Finding::note("replica", message).advice("a failover to it is not possible until it answers")
    }
}

/// Examines the things that a replica needs to take the place of its primary.
fn examine_replica(connection: &mut ServerConnection, needs: &Needs<'_>) -> Result<Vec<Finding>, Error> {
    let mut findings = permissions::examine(connection, needs)?;
    findings.extend(Info::of(&connection.ask(&["INFO"])?).map(|info| memory::eviction(&info)));
    Ok(findings)
}

/// The findings about one primary.
#[derive(Default)]
struct Examined {
    findings: Vec<Finding>,
    /// Seconds by which its clock is ahead of this machine's, if the user may ask.
    clock_ahead: Option<f64>,
    /// The number of its replicas, if the user may ask.
    replicas: Option<usize>,
}

fn examine(connection: &mut ServerConnection, needs: &Needs<'_>) -> Result<Examined, Error> {
    let mut examined = Examined::default();
    let findings = &mut examined.findings;
    match Info::of(&connection.ask(&["INFO"])?) {
        Some(info) => {
            findings.push(version::examine(&info));
            findings.extend(replication::examine(&info, needs.has_several));
            findings.extend(memory::examine(&info));
            findings.extend(connections(&info));
            examined.replicas = info.number("connected_slaves").and_then(|count| count.try_into().ok());
        }
        None => findings.push(
            Finding::note("server", "the user may not run INFO: version, role, memory and replication are not known")
                .advice("run doctor with a user that may (+info)"),
        ),
    }
    findings.extend(permissions::examine(connection, needs)?);
    findings.extend(releases::examine(connection, needs.prefix)?);
    examined.clock_ahead = clock::ahead(connection)?;
    findings.extend(examined.clock_ahead.map(clock::examine));
    if needs.is_cluster {
        findings.extend(Info::of(&connection.ask(&["CLUSTER", "INFO"])?).map(|cluster| cluster_state(&cluster)));
    }
    findings.push(clock::round_trip(connection)?);
    Ok(examined)
}

fn cluster_state(info: &Info) -> Finding {
    let slots = |what: &str| info.get(what).unwrap_or("?");
    let assigned = slots("cluster_slots_assigned");
    match info.get("cluster_state") {
        Some("ok") => Finding::ok("cluster", format!("state ok, {assigned} of 16384 slots assigned")),
        state => {
            let (state, served) = (state.unwrap_or("unknown"), slots("cluster_slots_ok"));
            let message = format!(
                "state {state}: {assigned} of 16384 slots are assigned, and nodes that answer serve {served}; keys of the others \
                 fail, and all keys do where cluster-require-full-coverage is yes"
            );
            Finding::problem("cluster", message)
                .advice("redis-cli --cluster check HOST:PORT says which node is missing")
        }
    }
}

/// Examines if clients can still connect.
fn connections(info: &Info) -> Option<Finding> {
    let (connected, most) = (info.number("connected_clients")?, info.number("maxclients")?);
    let message = format!("{connected} of {most} connections in use");
    Some(if connected * 10 >= most * 9 {
        Finding::note("connections", message).advice("raise maxclients: a client beyond it is refused")
    } else {
        Finding::ok("connections", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_without_a_node_says_how_many_slots_are_served() {
        let info = |state, served: u32| {
            Info::from_text(&format!(
                "cluster_state:{state}\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:{served}\r\ncluster_slots_fail:{}",
                16384 - served
            ))
        };
        let dead = cluster_state(&info("fail", 10923));
        assert_eq!(dead.level, Level::Problem);
        assert!(dead.message.contains("nodes that answer serve 10923; keys of the others fail"), "{}", dead.message);
        let whole = cluster_state(&info("ok", 16384));
        assert_eq!((whole.level, &*whole.message), (Level::Ok, "state ok, 16384 of 16384 slots assigned"));
    }
}
