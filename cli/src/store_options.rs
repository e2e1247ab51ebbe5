//! The options of the store, and the limiter that they describe.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use tidegate::host::{self, DEFAULT_PREFIX, KeyNames, Links, StoreServers};
use tidegate::{AsyncLimiter, Builder, Limiter, OnStoreError, Policy, PolicyFile};
use tidegate_simulate::text::escaped;

use crate::policy_argument::{self, PoliciesOption};
use crate::temporary_keys::temporary_prefix;
use crate::{Output, Result, invalid, time_text};

#[derive(Debug, Clone, Args)]
pub(crate) struct StoreOptions {
    /// The URL of the store: redis://, rediss://, redis+unix://, redis+sentinel://, redis+cluster:// (or valkey), postgresql://, file://, memory://.
    /// With several, each store gets a share of the keys: repeat the option, or separate the URLs with blanks
    #[arg(
        long = "store",
        help_heading = "Store",
        value_name = "URL",
        env = "TIDEGATE_STORE",
        hide_env_values = true,
        value_delimiter = ' ',
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) stores: Vec<String>,

    #[command(flatten)]
    pub(crate) policies: PoliciesOption,

    /// The beginning of every key in Redis [default: `prefix` of the policy file, or tg]
    #[arg(long, value_name = "TEXT", help_heading = "Store")]
    prefix: Option<String>,

    /// The file with the secret for names of keys, if your services use `key_secret`
    #[arg(long, value_name = "FILE", env = "TIDEGATE_KEY_SECRET_FILE", hide_env_values = true, help_heading = "Store")]
    key_secret_file: Option<PathBuf>,

    /// The longest wait for the store, such as 250ms or 2s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time_text::parse, help_heading = "Store")]
    pub(crate) timeout: Duration,
}

/// The largest file of a secret, in bytes: a guard against reading another file by mistake.
const MAX_SECRET: usize = 65_536;

/// The stores of a command. In a rollout, `urls` is the old store and `rollout` the new one with its share of the keys.
pub(crate) struct ChosenStore {
    pub(crate) urls: Vec<String>,
    pub(crate) rollout: Option<(String, f64)>,
    /// The prefix of keys, if there is no `--prefix`.
    pub(crate) prefix: String,
}

impl ChosenStore {
    /// True if usage lives in this process.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(&*self.urls, [url] if url.starts_with("memory:")) && self.rollout.is_none()
    }

    /// The URL of a file that processes share, if that is the store.
    pub(crate) fn file(&self) -> Option<&str> {
        self.all().find(|url| url.starts_with("file:"))
    }

    /// The URL of a table in PostgreSQL, if that is the store.
    pub(crate) fn postgres(&self) -> Option<&str> {
        self.all().find(|url| url.starts_with("postgres"))
    }

    /// Every URL.
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        self.urls.iter().map(String::as_str).chain(self.rollout.iter().map(|(url, _)| url.as_str()))
    }

    /// The servers of each URL.
    pub(crate) fn servers(&self, timeout: Duration) -> Result<Vec<StoreServers>> {
        let of = |url| {
            StoreServers::of(url, timeout)?.ok_or_else(|| {
                invalid(
                    "this verb needs servers of Redis or Valkey: name them with --store redis://…, and not memory://, \
                    file:// or postgresql://",
                )
            })
        };
        self.all().map(of).collect()
    }

    /// The URLs for people, without secrets.
    pub(crate) fn shown(&self) -> String {
        escaped(&self.all().map(host::without_secrets).collect::<Vec<_>>().join(", "))
    }
}

/// How a verb that works on a key treats a store in memory, which is empty at every start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnMemory {
    Works,
    Refuses,
}

/// The policy of a verb, and a limiter on the store.
pub(crate) struct OpenStore {
    pub(crate) limiter: Limiter,
    pub(crate) policy: Policy,
}

impl StoreOptions {
    pub(crate) fn chosen(&self, file: Option<&PolicyFile>) -> ChosenStore {
        let prefix = file.and_then(PolicyFile::prefix).unwrap_or(DEFAULT_PREFIX).to_owned();
        if !self.stores.is_empty() {
            return ChosenStore { urls: self.stores.clone(), rollout: None, prefix };
        }
        let of_file = file.and_then(PolicyFile::store).map(<[String]>::to_vec);
        let rollout = file.and_then(PolicyFile::rollout).map(|(url, percent)| (url.to_owned(), percent));
        ChosenStore { urls: of_file.unwrap_or_else(|| vec!["memory://".to_owned()]), rollout, prefix }
    }

    /// The prefix of every key.
    pub(crate) fn prefix<'a>(&'a self, store: &'a ChosenStore) -> &'a str {
        self.prefix.as_deref().unwrap_or(&store.prefix)
    }

    /// The policy of a verb that works on a key, and the limiter.
    pub(crate) fn open(&self, policy: &str, on_memory: OnMemory, output: &mut Output) -> Result<OpenStore> {
        let file = self.policies.read()?;
        let policy = policy_argument::find(policy, file.as_ref())?;
        let store = self.chosen(file.as_ref());
        if store.is_memory() && on_memory == OnMemory::Refuses {
            return Err(invalid(
                "memory:// is empty whenever the command starts, so there is nothing to work on: name the store of your \
                 services with --store redis://…, the environment variable TIDEGATE_STORE, or `store:` of --policies FILE",
            ));
        }
        if store.is_memory() {
            output.note(
                "memory:// is empty whenever the command starts, so this key was never used. Name the store of your services \
                 with --store or TIDEGATE_STORE",
            );
        }
        Ok(OpenStore { limiter: self.limiter(&store, output)?, policy: by_itself(&policy)? })
    }

    /// These options with a temporary prefix, for a measurement that removes its keys again.
    pub(crate) fn with_temporary_keys(&self, verb: &str) -> Self {
        Self { prefix: Some(temporary_prefix(verb)), key_secret_file: None, ..self.clone() }
    }

    /// A limiter without the layers that answer in place of the store.
    pub(crate) fn limiter(&self, store: &ChosenStore, output: &Output) -> Result<Limiter> {
        let is_json = output.is_json();
        let warn = move |text: &str| {
            if !is_json {
                eprintln!("note: {}", escaped(text));
            }
        };
        self.builder(store)?.on_warning(Arc::new(warn)).build()
    }

    /// A limiter for tasks, which sends their checks in batches.
    pub(crate) fn shared_limiter(&self, store: &ChosenStore) -> Result<AsyncLimiter> {
        self.builder(store)?.build_async()
    }

    /// The rules for the names of keys: the prefix and the secret.
    pub(crate) fn names(&self, store: &ChosenStore) -> Result<KeyNames> {
        KeyNames::new(self.prefix(store), self.key_secret()?.as_deref())
    }

    /// Reads the file of the secret, without blanks at its end.
    fn key_secret(&self) -> Result<Option<Vec<u8>>> {
        let Some(path) = &self.key_secret_file else { return Ok(None) };
        // The path is not shown, because a user may have passed the secret itself in its place.
        let secret = host::read_regular_file(path, MAX_SECRET, Links::Followed)
            .map_err(|why| invalid(format!("the file that --key-secret-file names {why}")))?;
        Ok(Some(secret.trim_ascii_end().to_vec()))
    }

    /// The builder of these limiters.
    pub(crate) fn builder(&self, store: &ChosenStore) -> Result<Builder> {
        let mut builder = host::unpublished(Limiter::builder());
        if let Some(secret) = self.key_secret()? {
            builder = builder.key_secret(secret);
        }
        let builder = match (&store.rollout, &*store.urls) {
            (Some((new, percent)), [old]) => builder.rollout(old, new, *percent),
            _ => builder.stores(&store.urls),
        };
        let builder = builder.prefix(self.prefix(store)).timeout(self.timeout).deny_cache(Duration::ZERO);
        Ok(builder.on_store_error(OnStoreError::Raise))
    }
}

/// The policy without its lease and its choice for a failed store. A command asks the store for every check, and
/// reports a failure.
fn by_itself(policy: &Policy) -> Result<Policy> {
    let mut options = policy.options().clone();
    (options.on_store_error, options.lease) = (None, None);
    Policy::new(policy.limits().to_vec(), options)?.named(policy.name())
}
