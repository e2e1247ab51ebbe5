//! The store in a file: several processes that share it, are killed and stopped, and files that cannot be used. The vectors, random
//! histories and lives run on it beside the other stores.

mod files;
mod processes;
mod table;
