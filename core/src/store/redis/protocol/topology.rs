//! Which server serves which slot.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use crate::store::url::Address;

/// Hash slots of a cluster.
pub(crate) const SLOTS: usize = 16_384;
const UNASSIGNED: u16 = u16::MAX;

/// A primary and the replicas that follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) primary: Address,
    pub(crate) replicas: Vec<Address>,
}

/// The primaries and replicas of a store, no primary twice, and which of them serves which slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Topology {
    shards: Vec<Shard>,
    /// The index of the shard of each slot. Empty if there is one shard and no slots.
    slots: Vec<u16>,
}

impl Topology {
    /// One shard for everything.
    pub(crate) fn of_one(shard: Shard) -> Self {
        Self { shards: vec![shard], slots: Vec::new() }
    }

    /// `shards` has at most as many ranges as there are slots.
    pub(crate) fn of_slots(shards: impl IntoIterator<Item = (RangeInclusive<u16>, Shard)>) -> Self {
        let mut topology = Self { shards: Vec::new(), slots: vec![UNASSIGNED; SLOTS] };
        let mut known = HashMap::new();
        for (range, shard) in shards {
            let index = *known.entry(shard.primary.clone()).or_insert_with(|| {
                topology.shards.push(shard);
                (topology.shards.len() - 1) as u16
            });
            for slot in range {
                if let Some(owner) = topology.slots.get_mut(usize::from(slot)) {
                    *owner = index;
                }
            }
        }
        topology
    }

    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    pub(crate) fn has_replica(&self, address: &Address) -> bool {
        self.shards.iter().any(|shard| shard.replicas.contains(address))
    }

    /// The index of the shard that serves a slot, if any does.
    pub(crate) fn shard_index(&self, slot: u16) -> Option<usize> {
        match self.slots.get(usize::from(slot)) {
            None => Some(0),
            Some(&UNASSIGNED) => None,
            Some(index) => Some(usize::from(*index)),
        }
    }

    fn shard(&self, slot: u16) -> Option<&Shard> {
        self.shards.get(self.shard_index(slot)?)
    }

    /// The primary that serves a slot, if any does.
    pub(crate) fn primary(&self, slot: u16) -> Option<&Address> {
        self.shard(slot).map(|shard| &shard.primary)
    }

    /// The replica that answers reads of a slot, if there is one.
    pub(crate) fn replica(&self, slot: u16) -> Option<&Address> {
        let replicas = &self.shard(slot)?.replicas;
        replicas.get(usize::from(slot) % replicas.len().max(1))
    }

    /// Takes a redirect: that primary serves the slot now. Ignores a new one once there are as many primaries as slots.
    pub(crate) fn move_slot(&mut self, slot: u16, primary: Address) {
        let known = self.shards.iter().position(|shard| shard.primary == primary);
        let Some(owner) =
            self.slots.get_mut(usize::from(slot)).filter(|_| known.is_some() || self.shards.len() < SLOTS)
        else {
            return;
        };
        *owner = known.unwrap_or_else(|| {
            self.shards.push(Shard { primary, replicas: Vec::new() });
            self.shards.len() - 1
        }) as u16;
    }
}

/// The hash slot of a key's name, which has no braces: CRC16 (XMODEM) of all its bytes.
pub(crate) fn hash_slot(name: &[u8]) -> u16 {
    const TABLE: [u16; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut crc = (byte as u16) << 8;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
                bit += 1;
            }
            table[byte] = crc;
            byte += 1;
        }
        table
    };
    let crc = name.iter().fold(0_u16, |crc, byte| crc << 8 ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)]);
    crc % SLOTS as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        Address::Tcp("h".into(), port)
    }

    #[test]
    fn slots_are_those_of_redis() {
        // The values of CLUSTER KEYSLOT.
        assert_eq!(hash_slot(b"123456789"), 12_739);
        assert_eq!(hash_slot(b"foo"), 12_182);
        assert_eq!(hash_slot(b""), 0);
    }

    #[test]
    fn a_slot_moves_alone() {
        let shard = |port| Shard { primary: address(port), replicas: vec![address(port + 100)] };
        let mut topology = Topology::of_slots([(0..=99, shard(1)), (100..=16_382, shard(2)), (200..=200, shard(1))]);
        assert_eq!([0, 100, 200, 16_382].map(|slot| topology.shard_index(slot)), [Some(0), Some(1), Some(0), Some(1)]);
        assert_eq!(topology.shard_index(16_383), None);
        topology.move_slot(100, address(3));
        topology.move_slot(0, address(2));
        assert_eq!([0, 1, 100, 101].map(|slot| topology.shard_index(slot)), [Some(1), Some(0), Some(2), Some(1)]);
        assert_eq!(topology.shards().len(), 3);
        (0..=u16::MAX).for_each(|port| topology.move_slot(7, address(port)));
        assert_eq!(topology.shards().len(), SLOTS);
        assert_eq!(Topology::of_one(shard(1)).shard_index(9_000), Some(0));
    }
}
