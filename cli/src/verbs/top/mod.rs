//! `tidegate top`: shows live which policies and keys are limited. It asks servers for a bounded number of their keys,
//! in small steps, and reads a file without its locks. Keys in a store are digests, so the names come from the
//! processes of this machine that publish them.

mod page;
mod published;
mod sampling;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;
#[cfg(unix)]
use tidegate::host::StoredFile;
use tidegate::host::{KeyNames, StoredTable};
use tidegate::{Cost, Decision, Error, ErrorKind, Policy, PolicyFile};

use crate::store_options::{ChosenStore, StoreOptions};
use crate::terminal::is_interactive;
use crate::{Outcome, Output, Result, invalid, time_text};
use page::Page;
use published::{NamedKey, Published};
#[cfg(unix)]
use sampling::FileSampler;
use sampling::{Sample, Sampler, ServerSampler, TableSampler};

/// Returns the name that the store has in the place of a key.
type NameInStore<'a> = &'a dyn Fn(&Policy, &str) -> Option<Vec<u8>>;

/// The most named keys that a reading asks the store about.
const MAX_PEEKS: usize = 100;
/// The allowed times between two readings.
const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3_600);

#[derive(Debug, Args)]
#[command(
    after_help = "Redis holds digests instead of keys. To see names, set TIDEGATE_TOP to a folder in the environment of your \
        processes on this machine. Each limiter then writes a file there once a second, with the counts of its policies and \
        the 256 keys that it denied last. Only the user of the process may read it. `top` does not see other machines.

`top` reads a file (file:///path/to/limits) without its locks, and the rows of a table (postgresql://) in the order of their keys. It asks servers with DBSIZE, SCAN, GETRANGE and TIME, for at most --sample keys of each primary in a reading, 100 at a time. Keys at their limit stay on the page until they are admitted again. It cannot read the value of a `sliding-log`.

Examples:
  $ tidegate top --store redis://localhost:6379 --policies tidegate.yaml
  $ TIDEGATE_TOP=~/top tidegate top --store redis://localhost:6379
  $ tidegate top --store redis://localhost:6379 --policies tidegate.yaml --readings 2 --json"
)]
pub(crate) struct Top {
    #[command(flatten)]
    store: StoreOptions,

    /// The folder that TIDEGATE_TOP names in your processes, where they publish their counts and denied keys
    #[arg(long, value_name = "FOLDER", env = "TIDEGATE_TOP", hide_env_values = true)]
    names: Option<PathBuf>,

    /// The time between two readings
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time_text::parse)]
    interval: Duration,

    /// The number of readings [default: until Ctrl-C in a terminal, else 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    readings: Option<u32>,

    /// The most keys to read from each server, or from the file, in a reading. 0 asks no store
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    sample: u32,

    /// The most lines of keys to show
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rows: u32,
}

/// A key that is being limited.
struct KeyLine {
    /// The policy of a key with a name. Without a name, all policies that the value of the key fits.
    policies: Vec<String>,
    /// The name, or the digest.
    key: String,
    is_named: bool,
    /// The answer of its store now, if it is known.
    decision: Option<Decision>,
    denied_per_second: Option<f64>,
}

/// The results of one reading.
struct Observation {
    at: SystemTime,
    sample: Sample,
    keys: Vec<KeyLine>,
    /// Keys at their limit beyond --rows.
    left_out: usize,
}

impl Top {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome> {
        let file = self.store.policies.read()?;
        let store = self.store.chosen(file.as_ref());
        let names = self.store.names(&store)?;
        if !INTERVALS.contains(&self.interval) {
            return Err(invalid("--interval must be from 100ms to 1h"));
        }
        if store.is_memory() && self.names.is_none() {
            return Err(invalid(
                "there is nothing to watch: name the store of your services with --store redis://… or TIDEGATE_STORE, or the \
                 folder of their TIDEGATE_TOP with --names, or both",
            ));
        }
        let mut published = self.names.as_deref().map(Published::of).transpose()?;
        let mut samplers = self.samplers(&store, &names)?;
        let limiter = (!store.is_memory()).then(|| self.store.limiter(&store, output)).transpose()?;
        let readings = match self.readings {
            Some(readings) => readings,
            None if is_interactive() && !output.is_json() => u32::MAX,
            None => 1,
        };
        for _ in 0..readings {
            std::thread::sleep(self.interval);
            if let Some(published) = &mut published {
                published.read()?;
            }
            let policies = policies(file.as_ref(), published.as_ref());
            let mut sample = Sample::default();
            for sampler in &mut samplers {
                sampler.read(self.sample as usize, &policies, &mut sample);
            }
            let peek = |named: &NamedKey| {
                let policy = policy_of(named, &policies)?;
                limiter.as_ref()?.peek(&policy, &named.key, Cost::one_of_each(&policy)).ok()
            };
            let name = |policy: &Policy, key: &str| Some(samplers.first()?.name(&names, policy, key));
            let (keys, left_out) = self.keys(&mut sample, &policies, published.as_ref(), (&store, &name), peek);
            let reading = Observation { at: SystemTime::now(), sample, keys, left_out };
            let page = Page { top: self, store: &store, reading: &reading, published: published.as_ref() };
            page.show(output, readings > 1);
            if output.is_closed() {
                break;
            }
            let is_blind = published.is_none() && !samplers.is_empty() && reading.sample.servers == 0;
            if let (true, Some(failure), 1) = (is_blind, reading.sample.failures.first(), readings) {
                return Err(Error::new(ErrorKind::StoreUnavailable, failure));
            }
        }
        Ok(Outcome::Done)
    }

    fn samplers(&self, store: &ChosenStore, names: &KeyNames) -> Result<Vec<Sampler>> {
        if self.sample == 0 || store.is_memory() {
            return Ok(Vec::new());
        }
        #[cfg(unix)]
        if let Some(url) = store.file() {
            let file = StoredFile::open(url, names, self.store.timeout)?;
            return Ok(vec![Sampler::File(Box::new(FileSampler::new(file)))]);
        }
        if let Some(url) = store.postgres() {
            let table = TableSampler::new(StoredTable::open(url, names, self.store.timeout)?, self.store.prefix(store));
            return Ok(vec![Sampler::Table(Box::new(table))]);
        }
        let servers = store.servers(self.store.timeout)?.into_iter();
        Ok(servers.map(|servers| Sampler::Servers(ServerSampler::new(servers, self.store.prefix(store)))).collect())
    }

    /// The lines of keys, and the number that did not fit. The most denied keys come first, then others at their limit.
    fn keys(
        &self,
        sample: &mut Sample,
        policies: &[Policy],
        published: Option<&Published>,
        (store, name_in_store): (&ChosenStore, NameInStore<'_>),
        peek: impl Fn(&NamedKey) -> Option<Decision>,
    ) -> (Vec<KeyLine>, usize) {
        let (prefix, store) = (self.store.prefix(store), &store.shown());
        let names = published.into_iter().flat_map(Published::names).filter(|(of_process, _)| *of_process == prefix);
        let by_name = |(_, named): (&str, &NamedKey)| {
            let policy = policy_of(named, policies)?;
            Some((name_in_store(&policy, &named.key)?, named.clone()))
        };
        let named: HashMap<Vec<u8>, NamedKey> = names.filter_map(by_name).collect();
        let mut denied: BTreeMap<NamedKey, f64> = published.map(|published| published.denied(None)).unwrap_or_default();
        let of_store = published.map(|published| published.denied(Some((store, prefix))));
        let of_store = of_store.unwrap_or_default();
        let mut lines: Vec<KeyLine> = Vec::new();
        for (name_in_store, limited) in sample.limited.drain() {
            let name = named.get(&name_in_store);
            let rate = name.and_then(|name| denied.remove(name));
            lines.push(KeyLine {
                policies: name.map_or(limited.policies, |name| vec![name.policy.clone()]),
                key: name.map_or_else(|| limited.decision.key().to_owned(), |name| name.key.clone()),
                is_named: name.is_some(),
                decision: Some(limited.decision),
                denied_per_second: rate,
            });
        }
        for (at, (name, rate)) in denied.into_iter().enumerate() {
            let decision = (at < MAX_PEEKS && of_store.contains_key(&name)).then(|| peek(&name)).flatten();
            lines.push(KeyLine {
                policies: vec![name.policy],
                key: name.key,
                is_named: true,
                decision,
                denied_per_second: Some(rate),
            });
        }
        let rate = |line: &KeyLine| line.denied_per_second.unwrap_or_default();
        lines.sort_by(|a, b| {
            rate(b).total_cmp(&rate(a)).then_with(|| (&a.policies, &a.key).cmp(&(&b.policies, &b.key)))
        });
        let left_out = lines.len().saturating_sub(self.rows as usize);
        lines.truncate(self.rows as usize);
        (lines, left_out)
    }
}

/// The policy of a named key: a known one, or the notation in its place.
fn policy_of(named: &NamedKey, policies: &[Policy]) -> Option<Policy> {
    let known = policies.iter().find(|policy| policy.name() == named.policy).cloned();
    known.or_else(|| Policy::parse(&named.policy).ok())
}

/// The policies of the file, and those that processes publish.
fn policies(file: Option<&PolicyFile>, published: Option<&Published>) -> Vec<Policy> {
    let mut policies: Vec<Policy> = file.map(|file| file.policies().to_vec()).unwrap_or_default();
    for policy in published.map(Published::policies).unwrap_or_default() {
        if policies.iter().all(|known| known.name() != policy.name()) {
            policies.push(policy);
        }
    }
    policies
}
