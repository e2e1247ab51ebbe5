//! The parts of tables that are bounded in bytes: keys, items found by their hash, budgets, the sizes of allocations.

pub(crate) mod allocation;
pub(crate) mod byte_budget;
pub(crate) mod hash_slab;
pub(crate) mod one_or_many;
pub(crate) mod table_key;
