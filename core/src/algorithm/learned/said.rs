//! The limits that a response announces.

use smallvec::SmallVec;

/// The announcements of a response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Said {
    /// The time that the key has to wait, in microseconds. 0 if the response sets none.
    pub(crate) wait: u64,
    /// The number of calls that the key had charged at the time of the answered call, if known.
    pub(crate) calls: Option<u64>,
    pub(crate) limits: SmallVec<[SaidLimit; 1]>,
}

impl Said {
    /// The same announcements for other numbers of the key. `limit_of` returns the place and the capacity of a limit there.
    pub(crate) fn translated(&self, limit_of: impl Fn(usize) -> Option<(usize, u64)>) -> Self {
        let mut said = self.clone();
        for limit in said.limits.iter_mut().filter(|limit| limit.place > 0) {
            let other = limit_of(usize::from(limit.place) - 1);
            limit.place = other.map_or(0, |(place, _)| place as u8 + 1);
            limit.capacity = other.filter(|_| limit.capacity > 0).map_or(0, |(_, capacity)| capacity);
        }
        said
    }
}

/// One limit that a response announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SaidLimit {
    /// A digest of its name, unit and length.
    pub(crate) id: u64,
    /// The place of the policy's limit that it belongs to, from 1 on. 0 if the policy's limits count other units.
    pub(crate) place: u8,
    /// True if the response stated the count of the limit.
    pub(crate) is_stated: bool,
    pub(crate) limit: u64,
    /// The used units of the limit.
    pub(crate) used: u64,
    /// The time until its reset. 0 if the response gives only the units left.
    pub(crate) reset: u64,
    /// Its length, 0 if unknown.
    pub(crate) length: u64,
    /// The units that the answered call took from it.
    pub(crate) units: u64,
    /// The count of the policy's limit. 0 if only learned limits apply to the calls, or if the policy counts other units.
    pub(crate) capacity: u64,
    /// The used units that were known when the answered call was charged, if known.
    pub(crate) known: Option<u64>,
}

impl SaidLimit {
    /// Its numbers, in the order that the script expects.
    #[cfg(feature = "stored")]
    pub(crate) fn numbers(&self) -> [f64; 10] {
        let Self { id, place, is_stated, limit, used, reset, length, units, capacity, known } = *self;
        let numbers = [id, place.into(), is_stated.into(), limit, used, reset, length, units, capacity];
        let mut all = [known.map_or(-1.0, |known| known as f64); 10];
        all.iter_mut().zip(numbers).for_each(|(slot, number)| *slot = number as f64);
        all
    }
}
