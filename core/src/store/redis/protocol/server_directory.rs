//! The servers behind one store URL, as far as the URL describes them: the login and the expected role of each.

use std::sync::Arc;
use std::time::Duration;

use super::failure::Failure;
use super::handshake::ExpectedRole;
use super::schedule::script_pause;
use crate::counting::histogram::SharedHistogram;
use crate::store::url::{Address, Deployment, Endpoints, Login};

/// One server and how to log in there.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: Address,
    pub(crate) login: Arc<Login>,
    pub(crate) role: ExpectedRole,
    /// Its name in messages, without secrets.
    pub(crate) shown: String,
    /// How long a call may take, for messages and for attempts to connect.
    pub(crate) timeout: Duration,
    /// True if the store URL lets calls, and the password, go there.
    pub(crate) is_followed: bool,
}

impl Server {
    pub(crate) fn failure(&self, error: &std::io::Error, sent: bool) -> Failure {
        Failure::of_io(error, sent, &self.shown, self.timeout)
    }
}

/// The server of a shard that a call goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    Primary,
    Replica,
}

/// The settings of a store URL for its servers.
pub(crate) struct ServerDirectory {
    pub(crate) endpoints: Endpoints,
    login: Arc<Login>,
    sentinel_login: Arc<Login>,
    timeout: Duration,
    /// Counts the requests of each script call.
    batch_sizes: Option<Arc<SharedHistogram>>,
    /// How long a process waits before it sends the script. A simulation sets it.
    script_pause: fn(Duration) -> Duration,
}

/// The settings that all pipelines of a router share.
#[derive(Clone)]
pub(crate) struct PipelineOptions {
    pub(crate) prefix: Arc<str>,
    /// The most requests in one batch.
    pub(crate) max_batch: usize,
    pub(crate) directory: Arc<ServerDirectory>,
}

impl ServerDirectory {
    pub(crate) fn new(endpoints: Endpoints, timeout: Duration) -> Self {
        let sentinel_login = match &endpoints.deployment {
            Deployment::Sentinel { login, .. } => login.clone(),
            _ => Login::default(),
        };
        let login = Arc::new(endpoints.login.clone());
        Self { endpoints, login, sentinel_login: Arc::new(sentinel_login), timeout, batch_sizes: None, script_pause }
    }

    /// Makes the pauses of a simulation repeatable.
    #[cfg(test)]
    pub(crate) fn with_script_pause(self, script_pause: fn(Duration) -> Duration) -> Self {
        Self { script_pause, ..self }
    }

    /// The time to wait before the script is sent.
    pub(crate) fn script_pause(&self) -> Duration {
        (self.script_pause)(self.timeout)
    }

    /// Counts the requests of batches in this histogram.
    pub(crate) fn with_batch_sizes(self, batch_sizes: Arc<SharedHistogram>) -> Self {
        Self { batch_sizes: Some(batch_sizes), ..self }
    }

    /// Counts a batch that is sent for the first time.
    pub(crate) fn batch_formed(&self, requests: usize) {
        if let Some(batch_sizes) = &self.batch_sizes {
            batch_sizes.observe(requests as u64);
        }
    }

    /// The store's name in messages, without secrets.
    pub(crate) fn shown(&self) -> &str {
        &self.endpoints.shown
    }

    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// True if another server may come to serve a key.
    pub(crate) fn has_several_servers(&self) -> bool {
        !matches!(self.endpoints.deployment, Deployment::Single(_))
    }

    pub(crate) fn has_sentinels(&self) -> bool {
        matches!(self.endpoints.deployment, Deployment::Sentinel { .. })
    }

    pub(crate) fn has_slots(&self) -> bool {
        matches!(self.endpoints.deployment, Deployment::Cluster(_))
    }

    pub(crate) fn reads_replicas(&self) -> bool {
        self.endpoints.read_replicas
    }

    /// The data server at an address.
    pub(crate) fn server(&self, address: Address, target: Target) -> Server {
        let role = match (&self.endpoints.deployment, target) {
            (Deployment::Single(_), _) => ExpectedRole::Single,
            (Deployment::Sentinel { .. }, Target::Primary) => ExpectedRole::Primary,
            (Deployment::Sentinel { .. }, Target::Replica) => ExpectedRole::Replica,
            (Deployment::Cluster(_), Target::Primary) => ExpectedRole::ClusterNode,
            (Deployment::Cluster(_), Target::Replica) => ExpectedRole::ClusterReplica,
        };
        let shown = match self.endpoints.deployment {
            Deployment::Single(_) => self.endpoints.shown.clone(),
            _ => format!("{address} of {}", self.endpoints.shown),
        };
        let is_followed = self.endpoints.may_follow(&address);
        Server { address, login: Arc::clone(&self.login), role, shown, timeout: self.timeout, is_followed }
    }

    pub(crate) fn sentinel(&self, address: Address) -> Server {
        Server {
            shown: format!("the sentinel {address} of {}", self.endpoints.shown),
            address,
            login: Arc::clone(&self.sentinel_login),
            role: ExpectedRole::Sentinel,
            timeout: self.timeout,
            is_followed: true,
        }
    }
}
