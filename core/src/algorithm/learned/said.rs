//! What a response said.

use smallvec::SmallVec;

/// What a response said of its limits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Said {
    /// For how long the key waits, in microseconds; 0 where it says nothing.
    pub(crate) wait: u64,
    /// How many calls of the key were charged when the call was that it answers, where that is known.
    pub(crate) calls: Option<u64>,
    pub(crate) limits: SmallVec<[SaidLimit; 1]>,
}

/// What a response said of one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SaidLimit {
    /// Its name, unit and length, as a digest.
    pub(crate) id: u64,
    /// Which limit of the policy it is about, from 1 on; 0 where that counts other units.
    pub(crate) place: u8,
    /// Whether the response has stated the count of the limit.
    pub(crate) is_stated: bool,
    pub(crate) limit: u64,
    /// The units that are used of it.
    pub(crate) used: u64,
    /// The time until it is reset; 0 where it says only what is left.
    pub(crate) reset: u64,
    /// Its length, where that is known; else 0.
    pub(crate) length: u64,
    /// The units that the answered call has taken of it.
    pub(crate) units: u64,
    /// The count of the policy's own limit; 0 where nothing but what is learned limits the calls, or the policy counts other units.
    pub(crate) capacity: u64,
    /// The units of it that were known to be used when the call was charged that was answered, where that is known.
    pub(crate) known: Option<u64>,
}

impl SaidLimit {
    /// Its numbers, in the order in which the script reads them.
    #[cfg(feature = "stored")]
    pub(crate) fn numbers(&self) -> [f64; 10] {
        let Self { id, place, is_stated, limit, used, reset, length, units, capacity, known } = *self;
        let numbers = [id, place.into(), is_stated.into(), limit, used, reset, length, units, capacity];
        let mut all = [known.map_or(-1.0, |known| known as f64); 10];
        all.iter_mut().zip(numbers).for_each(|(slot, number)| *slot = number as f64);
        all
    }
}
