//! Numbers with a check, so that a number that Tidegate has not written is noticed before it is used.
//!
//! A number of 52 bits stands below a check of 12. The check depends on the place of the number, so that a copy elsewhere
//! is damage too. In the first block of a record it also depends on the name. Each change of a single byte, of the number
//! or of the name, changes the check: the factors were chosen for that. One in 4,096 other changes goes unnoticed.

use super::record::{Damaged, RecordName};

/// The bits of a number, and of each half if it consists of two.
pub(super) const NUMBER_BITS: u32 = 52;
pub(super) const HALF_BITS: u32 = NUMBER_BITS / 2;
pub(super) const NUMBER: u64 = (1 << NUMBER_BITS) - 1;
pub(super) const HALF: u64 = (1 << HALF_BITS) - 1;

const OF_NUMBER: u64 = 0x137c_56af_8c51_87c1;
const OF_NAME: [u64; 2] = [0x9939_55be_5888_6f39, 0x1634_106f_49e1_859f];

/// The place and the name that a check depends on, beside its number.
#[derive(Clone, Copy)]
pub(super) struct Salt {
    place: u64,
    name: u64,
}

impl Salt {
    /// For a number at that place.
    #[inline(always)]
    pub(super) const fn at(place: usize) -> Self {
        Self { place: place as u64, name: 0 }
    }

    /// For the links of a record of that name.
    #[inline(always)]
    pub(super) const fn with(self, [first, second]: RecordName) -> Self {
        let name = first.wrapping_mul(OF_NAME[0]).wrapping_add(second.wrapping_mul(OF_NAME[1]));
        Self { name, ..self }
    }

    #[inline(always)]
    const fn check(self, number: u64) -> u64 {
        (number ^ self.place).wrapping_mul(OF_NUMBER).wrapping_add(self.name) & !NUMBER
    }

    #[inline(always)]
    pub(super) const fn seal(self, number: u64) -> u64 {
        number & NUMBER | self.check(number & NUMBER)
    }

    #[inline(always)]
    pub(super) const fn open(self, sealed: u64) -> Result<u64, Damaged> {
        let number = sealed & NUMBER;
        if self.check(number) == sealed & !NUMBER { Ok(number) } else { Err(Damaged) }
    }

    /// Seals two numbers of half the bits.
    #[inline(always)]
    pub(super) const fn seal_both(self, high: u64, low: u64) -> u64 {
        self.seal((high & HALF) << HALF_BITS | low & HALF)
    }

    #[inline(always)]
    pub(super) const fn open_both(self, sealed: u64) -> Result<(u64, u64), Damaged> {
        match self.open(sealed) {
            Ok(number) => Ok(halves(number)),
            Err(damaged) => Err(damaged),
        }
    }
}

/// Both halves of a number, opened or not.
#[inline(always)]
pub(super) const fn halves(number: u64) -> (u64, u64) {
    (number >> HALF_BITS & HALF, number & HALF)
}

/// The check of several numbers: each change of one of them changes it.
pub(super) fn digest(numbers: &[u64]) -> u64 {
    let mixed = numbers.iter().fold(NUMBER, |digest, number| (digest ^ number).wrapping_mul(OF_NUMBER).rotate_left(29));
    mixed ^ mixed >> 32
}
