//! The store in a file: several processes that share it, are killed and stopped, and files that cannot be used. The vectors, random
//! histories and lives run on it beside the other stores.

mod clock;
mod damage;
mod files;
mod processes;
#[path = "../../../../core/src/store/machine/record.rs"]
#[allow(dead_code, reason = "a test needs a part of it")]
mod record;
#[path = "../../../../core/src/store/machine/seal.rs"]
#[allow(dead_code, reason = "a test needs a part of it")]
mod seal;
mod table;
