//! Makes the limiter that a builder describes: its stores, the layers around them, and the core of both limiters.

use std::sync::atomic::{AtomicU8, AtomicU64};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::process::lock::InheritedMutex;

use super::acquire::WaitQueues;
use super::builder::Builder;
use super::call::Answers;
use super::file_watch::{self, FileWatch};
use super::hold_renewer::HoldRenewer;
use super::learned_waits::LearnedWaits;
use super::near_limit::NearLimits;
use super::policies::Policies;
use super::publisher;
use super::refusal_log::RefusalLog;
use super::{AsyncLimiter, Limiter, LimiterCore, OPEN};
use crate::counting::DecisionCounts;
use crate::counting::histogram::SharedHistogram;
use crate::decision::LimiterId;
use crate::error::{Error, Result, named};
use crate::plan::plan_cache::plan_of;
use crate::policy::prefix::why_no_prefix;
use crate::process::fork::{self, ForkListener, PerProcess};
use crate::process::log::Log;
use crate::process::pending_count::PendingCount;
use crate::resilience::{Breaker, Layers, MAX_DENY_CACHE, NearKeys, OneByOne, Rollout, Shards, Telemetry};
use crate::store::ForgottenDenials;
use crate::store::Store;
use crate::store::key_names::KeyNames;
#[cfg(all(unix, feature = "redis"))]
use crate::store::machine::{self, Machine};
use crate::store::memory::Memory;
#[cfg(feature = "postgres")]
use crate::store::postgres;
use crate::store::redis::{self, ReaderRegistry};
use crate::store::url::{Endpoints, StoreUrl, without_secrets};

impl Builder {
    /// A limiter for threads.
    ///
    /// # Errors
    /// `config_invalid` for the store, the prefix or the timeout.
    pub fn build(self) -> Result<Limiter> {
        Ok(Limiter { core: self.core()? })
    }

    /// A limiter for tasks.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn build_async(self) -> Result<AsyncLimiter> {
        Ok(AsyncLimiter { core: self.core()? })
    }

    /// The store of the options, and the layers around it if it is shared.
    fn layers(
        &self,
        readers: &Arc<PerProcess<ReaderRegistry>>,
        forgotten_denials: &Arc<ForgottenDenials>,
        log: &Arc<Log>,
    ) -> Result<(Arc<dyn Store>, Option<Layers>)> {
        let telemetry = Arc::new(Telemetry::new(self.listener.clone(), self.on_store_error, log));
        if let ([url], None, None) = (&*self.stores, &self.rollout, &self.application)
            && let StoreUrl::Memory(bounds) = StoreUrl::parse(url)?
        {
            return Ok((Arc::new(Memory::with_overrides(bounds, Arc::clone(forgotten_denials))), None));
        }
        #[cfg(feature = "bench")]
        if let (true, [url]) = (self.bare, &*self.stores)
            && let StoreUrl::Redis(server) = StoreUrl::parse(url)?
        {
            return Ok((self.redis(*server, readers, log, telemetry.batch_sizes())?, None));
        }
        let store = self.open_stores(&self.stores, &telemetry, readers, log)?;
        let rollout = match &self.rollout {
            Some((new, percent)) => {
                let new = self.open_stores(std::slice::from_ref(new), &telemetry, readers, log)?;
                Some(Rollout::new(Arc::clone(&store), new, *percent, self.timeout)?)
            }
            None => None,
        };
        // Reading a denial from a file is as fast as remembering it.
        let layers = Layers::around(
            store,
            rollout,
            self.on_store_error,
            if self.is_file() { Duration::ZERO } else { self.deny_cache },
            self.timeout,
            self.clock.clone(),
            telemetry,
        );
        Ok((layers.store(), Some(layers)))
    }

    fn is_file(&self) -> bool {
        self.stores.iter().any(|url| url.starts_with("file:"))
    }

    fn redis(
        &self,
        endpoints: Endpoints,
        readers: &Arc<PerProcess<ReaderRegistry>>,
        log: &Arc<Log>,
        batch_sizes: Arc<SharedHistogram>,
    ) -> Result<Arc<dyn Store>> {
        let (readers, log) = (Arc::clone(readers), Arc::clone(log));
        redis::open(endpoints, self.names()?, self.timeout, self.fold, readers, log, batch_sizes)
    }

    /// The store of these URLs. With several, each has a share of the keys.
    fn open_stores(
        &self,
        urls: &[String],
        telemetry: &Arc<Telemetry>,
        readers: &Arc<PerProcess<ReaderRegistry>>,
        log: &Arc<Log>,
    ) -> Result<Arc<dyn Store>> {
        if let (Some(open), [name]) = (&self.application, urls) {
            let (store, all_or_none) = open(self.names()?, self.timeout, Arc::clone(log))?;
            let store = Breaker::around(store, name, self.timeout, Arc::clone(telemetry));
            return Ok(if all_or_none { store } else { Arc::new(OneByOne::new(store, self.timeout)) });
        }
        if let [url] = urls
            && let StoreUrl::Memory(bounds) = StoreUrl::parse(url)?
        {
            return Ok(Arc::new(Memory::with_overrides(bounds, telemetry.forgotten_denials())));
        }
        #[cfg(all(unix, feature = "redis"))]
        if let [url] = urls
            && let StoreUrl::Machine(place) = StoreUrl::parse(url)?
        {
            // No breaker is around it: if a stopped process has locked one shard, the others still work.
            let (names, timeout) = (self.names()?, self.timeout);
            let (denials, said) = (telemetry.forgotten_denials(), Arc::clone(log));
            let open = move || Machine::open(&place, &names, timeout, &denials, &said);
            return machine::open(open, self.on_store_error, log);
        }
        let with_breaker = |url: &String| -> Result<(Arc<dyn Store>, String)> {
            let store = match StoreUrl::parse(url)? {
                StoreUrl::Memory(_) => {
                    return Err(Error::config("memory:// shares no keys with other stores: leave it out of the list"));
                }
                #[cfg(all(unix, feature = "redis"))]
                StoreUrl::Machine(_) => {
                    return Err(Error::config("file:// shares no keys with other stores: leave it out of the list"));
                }
                #[cfg(feature = "postgres")]
                StoreUrl::Postgres(_) if urls.len() > 1 => {
                    return Err(Error::config(
                        "postgresql:// shares no keys with other stores: leave it out of the list",
                    ));
                }
                #[cfg(feature = "postgres")]
                StoreUrl::Postgres(table) => postgres::open(*table, self.names()?, self.timeout, Arc::clone(log))?,
                StoreUrl::Redis(server) => self.redis(*server, readers, log, telemetry.batch_sizes())?,
            };
            Ok((Breaker::around(store, url, self.timeout, Arc::clone(telemetry)), url.clone()))
        };
        let mut stores = urls.iter().map(with_breaker).collect::<Result<Vec<_>>>()?;
        match (stores.len(), stores.pop()) {
            (1, Some((store, _))) => Ok(store),
            (_, Some(last)) => {
                stores.push(last);
                Ok(Arc::new(Shards::new(stores, self.timeout)?))
            }
            (_, None) => {
                Err(Error::config("the list of stores is empty: give at least one store URL, such as memory://"))
            }
        }
    }

    fn names(&self) -> Result<KeyNames> {
        KeyNames::new(&self.prefix, self.key_secret.as_deref())
    }

    /// A number for these stores and the names of their keys, the same in every process.
    fn shared_id(&self, names: &KeyNames) -> u64 {
        let mut stores: Vec<String> = self.stores.iter().map(|url| without_secrets(url)).collect();
        stores.sort_unstable();
        let new = self.rollout.as_ref().map(|(new, _)| without_secrets(new));
        let text = format!("{:?}", (&self.prefix, stores, new));
        let digest = names.hasher().update(text.as_bytes()).finalize();
        digest.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    fn file_watch(&self) -> Result<Option<FileWatch>> {
        match &self.source {
            _ if self.watch.is_zero() => Ok(None),
            _ if self.watch > file_watch::LONGEST => Err(Error::config(format!(
                "a {} of {:?} is out of range: it must be from 0, which never looks, to 1 day",
                named("watch"),
                self.watch
            ))),
            Some(source) => Ok(Some(FileWatch::new(self.watch, source.first_digest()))),
            None => Err(Error::config(format!(
                "{} looks for changes of a policy file, and this limiter has none: make it with {}",
                named("watch"),
                named("from_file")
            ))),
        }
    }

    fn core(self) -> Result<Arc<LimiterCore>> {
        if let Some(why) = why_no_prefix(&self.prefix) {
            return Err(Error::config(why));
        }
        if self.timeout < Duration::from_millis(1) || self.timeout > Duration::from_secs(3_600) {
            return Err(Error::config(format!(
                "a {} of {:?} is out of range: it must be from 1 ms to 1 hour",
                named("timeout"),
                self.timeout
            )));
        }
        if self.deny_cache > MAX_DENY_CACHE {
            return Err(Error::config(format!(
                "a {} of {:?} is out of range: it must be from 0, which is off, to 60 s",
                named("deny_cache"),
                self.deny_cache
            )));
        }
        for (name, callers) in
            [("max_waiting", self.wait_bounds.all), ("max_waiting_per_key", self.wait_bounds.per_key)]
        {
            if callers == 0 {
                return Err(Error::config(format!(
                    "{} is 0, which would deny every acquire: it must be 1 or more; a timeout of 0 does not wait",
                    named(name)
                )));
            }
        }
        if !(self.near_limit > 0.0 && self.near_limit <= 1.0) {
            return Err(Error::config(format!(
                "a {} of {} is no part of a limit: it must be more than 0 and at most 1, as in 0.8",
                named("near_limit"),
                self.near_limit
            )));
        }
        let watch = self.file_watch()?;
        let readers = Arc::new(PerProcess::new());
        let log = Log::new(self.warning_listener.clone());
        log.file_warnings(&self.file_warnings);
        let forgotten_denials = ForgottenDenials::shared(&log);
        let (store, layers) = self.layers(&readers, &forgotten_denials, &log)?;
        let in_file = self.source.as_ref().map_or(&[][..], |source| source.first().policies());
        in_file.iter().chain(&self.policies).try_for_each(|policy| store.accepts(&plan_of(policy)))?;
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), fork::id());
        let (shared_id, publishes, is_file) = (self.shared_id(&self.names()?), self.publishes, self.is_file());
        let id = LimiterId::of_digest(if layers.is_none() { seed } else { shared_id });
        let wait_queues = WaitQueues::new(self.wait_bounds);
        let decisions = DecisionCounts::default();
        if self.log_refusals {
            let refusals = RefusalLog::new(id, Arc::clone(&log));
            let listener = move |plan: &_, key: &_, answer: &_| refusals.note(plan, key, answer);
            let _ = decisions.on_refusal.set(Box::new(listener));
        }
        if let Some(listener) = self.near_listener {
            let (clock, log, started) = (self.clock.clone(), Arc::clone(&log), Instant::now());
            let near = NearLimits {
                limiter: id,
                part: self.near_limit,
                listener,
                clock,
                log,
                started,
                keys: NearKeys::default(),
            };
            let _ = decisions.on_admission.set(Box::new(move |plan, key, answer| near.see(plan, key, answer)));
        }
        let (overrides, learned_waits) = (Arc::default(), LearnedWaits::default());
        let answers = Arc::new(Answers { limiter: id, decisions, wait_queues, overrides, learned_waits });
        let core = Arc::new(LimiterCore {
            store,
            policies: Policies::new(in_file, self.policies),
            clock: self.clock,
            uses_store_of_file: self.uses_store_of_file,
            source: self.source,
            reloading: InheritedMutex::default(),
            reloads: <[AtomicU64; 2]>::default(),
            watch,
            reload_listener: self.reload_listener,
            id,
            answers,
            hold_renewer: HoldRenewer::default(),
            log,
            state: AtomicU8::new(OPEN),
            pending: PendingCount::default(),
            timeout: self.timeout,
            is_file,
            shown: self.stores.iter().map(|url| without_secrets(url)).collect::<Vec<_>>().join(", "),
            prefix: self.prefix.to_string(),
            seed,
            hold_count: AtomicU64::new(0),
            layers,
            host_data: self.host_data,
            forgotten_denials,
            readers,
        });
        core.policies.each(|plan| core.answers.decisions.begin(plan));
        let listener: Weak<dyn ForkListener> = Arc::<LimiterCore>::downgrade(&core);
        fork::listen(&listener);
        if publishes {
            publisher::begin(&core);
        }
        core.watch.iter().for_each(|watch| watch.begin_for(&core));
        if let Some(clock) = &core.clock {
            let listener = Arc::downgrade(&core);
            clock.listen(listener);
        }
        Ok(core)
    }
}
