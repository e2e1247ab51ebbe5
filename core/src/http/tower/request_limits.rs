//! The limits of a layer: the policies of a request, their keys and their cost.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Extensions, Method, Response, response};

use super::notation_place::PlaceUse;
use super::peer::PeerAddress;
use super::request_key::RequestKey;
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::http::named_policy::NamedPolicy;
use crate::http::{ClientIp, Headers, placed_key};
use crate::limiter::{AsyncLimiter, Cost, PolicyInForce};
use crate::policy::Policy;

/// A function of the layer's user.
pub(super) type Read<T, V> = Box<dyn Fn(&T) -> V + Send + Sync>;
pub(super) type OnDenied = Box<dyn Fn(&Parts, &Decision) -> Option<Response<Bytes>> + Send + Sync>;

/// The cost of a request, which its policies share.
pub(super) enum RequestCost {
    Fixed(Cost),
    Read(Read<Parts, Cost>),
}

/// Finds the policies, keys and cost of each request.
pub(super) struct RequestLimits {
    pub(super) limiter: AsyncLimiter,
    pub(super) policies: Vec<(NamedPolicy, Option<RequestKey>)>,
    /// More policies, by request.
    pub(super) policies_by: Option<Read<Parts, Vec<NamedPolicy>>>,
    pub(super) key: RequestKey,
    pub(super) peer: Read<Extensions, Option<PeerAddress>>,
    pub(super) cost: RequestCost,
    pub(super) priority: Option<Read<Parts, Option<String>>>,
    pub(super) meta: Option<Read<Parts, Option<Vec<u8>>>>,
    pub(super) skip: Option<Read<Parts, bool>>,
    pub(super) methods: Option<Vec<Method>>,
    pub(super) headers: Headers,
    pub(super) on_denied: Option<OnDenied>,
    pub(super) refund_when: Option<Read<response::Parts, bool>>,
    pub(super) settle: Option<Read<response::Parts, Option<Cost>>>,
    pub(super) settle_at_end: Option<Read<response::Parts, Option<Cost>>>,
    pub(super) place: Option<String>,
    pub(super) enabled: bool,
    /// The claims of this layer on its notations, which no other layer may count under the same name.
    pub(super) _places: Vec<Arc<PlaceUse>>,
}

/// The last layer that a request has passed and that has its own rules for addresses.
#[derive(Clone)]
struct PassedLayer(Arc<RequestLimits>);

/// One policy of a request.
pub(super) struct LimitEntry {
    pub(super) policy: NamedPolicy,
    pub(super) key: String,
    pub(super) in_force: PolicyInForce,
}

impl RequestLimits {
    /// Passes its rules for addresses to the layers behind this one, also for a request that it does not limit.
    pub(super) fn pass_addresses(self: &Arc<Self>, request: &mut Parts) {
        if self.addresses().is_some() {
            request.extensions.insert(PassedLayer(Arc::clone(self)));
        }
    }

    /// The rules for addresses of the key, if they are more than the default, which is the connected address.
    fn addresses(&self) -> Option<&ClientIp> {
        self.key.client().filter(|rules| **rules != ClientIp::default())
    }

    /// True if the request is limited at all.
    pub(super) fn applies_to(&self, request: &Parts) -> bool {
        let in_methods = self.methods.as_ref().is_none_or(|methods| methods.contains(&request.method));
        self.enabled && in_methods && !self.skip.as_ref().is_some_and(|skip| skip(request))
    }

    /// The cost of a request.
    ///
    /// # Errors
    /// `cost_invalid` for a unit that none of its policies counts.
    pub(super) fn cost_of(&self, request: &Parts, policies: &[PolicyInForce]) -> Result<Cow<'_, Cost>> {
        match &self.cost {
            RequestCost::Fixed(cost) if self.policies_by.is_none() => Ok(Cow::Borrowed(cost)),
            RequestCost::Fixed(cost) => counted_by(Cow::Borrowed(cost), policies),
            RequestCost::Read(read) => counted_by(Cow::Owned(read(request)), policies),
        }
    }

    /// The policies of a request with their keys.
    pub(super) fn entries(&self, request: &Parts) -> Result<Vec<LimitEntry>> {
        let passed = || request.extensions.get::<PassedLayer>().and_then(|PassedLayer(layer)| layer.addresses());
        let read = |key: &RequestKey| key.read(request, &*self.peer, &|| self.addresses().or_else(passed));
        let mut entries = Vec::with_capacity(self.policies.len());
        // Policies without their own key share that of the layer, which is read once.
        let mut shared = None;
        for (policy, own) in &self.policies {
            let key = match own {
                Some(own) => read(own)?,
                None => of_all(&mut shared, || read(&self.key))?,
            };
            entries.push(self.entry(policy.clone(), &key)?);
        }
        for policy in self.policies_by.as_ref().map(|read| read(request)).unwrap_or_default() {
            let key = of_all(&mut shared, || read(&self.key))?;
            entries.push(self.entry(policy, &key)?);
        }
        if self.policies_by.is_some() {
            let shares = self.policies.iter().map(|(_, own)| own.is_none()).chain(std::iter::repeat(true));
            let sharing = entries.iter().zip(shares).filter(|(_, shares)| *shares);
            each_once(sharing.map(|(entry, _)| &*entry.in_force))?;
        }
        Ok(entries)
    }

    fn entry(&self, policy: NamedPolicy, key: &str) -> Result<LimitEntry> {
        let in_force = self.limiter.find_policy(&policy, key)?;
        let place = is_in_place(&in_force).then(|| self.place.as_deref().unwrap_or_default());
        let key = placed_key(place, None, key);
        Ok(LimitEntry { policy, key, in_force })
    }
}

/// The value that all policies share. The first of them finds it.
fn of_all<T: Clone>(known: &mut Option<T>, find: impl FnOnce() -> Result<T>) -> Result<T> {
    match known {
        Some(known) => Ok(known.clone()),
        None => Ok(known.insert(find()?).clone()),
    }
}

/// Checks that no policy stands twice among those that share the key of the layer.
///
/// # Errors
/// `config_invalid`.
pub(super) fn each_once<'a>(policies: impl Iterator<Item = &'a Policy>) -> Result<()> {
    let mut names = Vec::new();
    for name in policies.map(Policy::name) {
        if names.contains(&name) {
            return Err(Error::config(format!(
                "the policy {name:?} has the same key twice, so a request would count twice: leave one out, or give it \
                 another key"
            )));
        }
        names.push(name);
    }
    Ok(())
}

/// # Errors
/// `cost_invalid` for a unit that none of the policies counts.
fn counted_by<'a>(cost: Cow<'a, Cost>, policies: &[PolicyInForce]) -> Result<Cow<'a, Cost>> {
    cost.check_counted(policies.iter().map(|policy| &**policy))?;
    Ok(cost)
}

/// True if a policy has no name but its notation.
pub(super) fn is_in_place(policy: &Policy) -> bool {
    policy.name() == policy.to_string()
}
