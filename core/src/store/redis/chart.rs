//! Which server serves which key.

use crate::store::url::Address;

/// Hash slots of a cluster.
pub(super) const SLOTS: usize = 16_384;
const NOBODY: u16 = u16::MAX;

/// A primary and the replicas that follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) primary: Address,
    pub(super) replicas: Vec<Address>,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chart {
    shards: Vec<Shard>,
    /// For each slot the number of its shard; empty when there are no slots, and one shard.
    slots: Vec<u16>,
}

impl Chart {
    /// One shard for everything.
    pub(super) fn of_one(shard: Shard) -> Self {
        Self { shards: vec![shard], slots: Vec::new() }
    }

    pub(super) fn of_slots(shards: impl IntoIterator<Item = (usize, usize, Shard)>) -> Self {
        let mut chart = Self { shards: Vec::new(), slots: vec![NOBODY; SLOTS] };
        for (first, last, shard) in shards {
            let number = chart.number(shard);
            chart.slots[first.min(SLOTS)..(last + 1).min(SLOTS)].fill(number);
        }
        chart
    }

    fn number(&mut self, shard: Shard) -> u16 {
        let known = self.shards.iter().position(|other| other.primary == shard.primary);
        known.unwrap_or_else(|| {
            self.shards.push(shard);
            self.shards.len() - 1
        }) as u16
    }

    pub(super) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The number of the shard that serves a slot, if any does.
    pub(super) fn shard_of(&self, slot: u16) -> Option<usize> {
        match self.slots.get(usize::from(slot)) {
            None => Some(0),
            Some(&NOBODY) => None,
            Some(number) => Some(usize::from(*number)),
        }
    }

    /// What one node said of one slot.
    pub(super) fn move_slot(&mut self, slot: u16, primary: Address) {
        let number = self.number(Shard { primary, replicas: Vec::new() });
        if let Some(owner) = self.slots.get_mut(usize::from(slot)) {
            *owner = number;
        }
    }
}

/// The hash slot of a name, which has no braces: CRC16 (XMODEM) of all its bytes.
pub(super) fn slot_of(name: &[u8]) -> u16 {
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
        // CLUSTER KEYSLOT says so.
        assert_eq!(slot_of(b"123456789"), 12_739);
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b""), 0);
    }

    #[test]
    fn a_slot_moves_alone() {
        let shard = |port| Shard { primary: address(port), replicas: vec![address(port + 100)] };
        let mut chart = Chart::of_slots([(0, 99, shard(1)), (100, 16_382, shard(2)), (200, 200, shard(1))]);
        assert_eq!([0, 100, 200, 16_382].map(|slot| chart.shard_of(slot)), [Some(0), Some(1), Some(0), Some(1)]);
        assert_eq!(chart.shard_of(16_383), None);
        chart.move_slot(100, address(3));
        chart.move_slot(0, address(2));
        assert_eq!([0, 1, 100, 101].map(|slot| chart.shard_of(slot)), [Some(1), Some(0), Some(2), Some(1)]);
        assert_eq!(chart.shards().len(), 3);
        assert_eq!(Chart::of_one(shard(1)).shard_of(9_000), Some(0));
    }
}
