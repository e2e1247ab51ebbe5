//! All tests of the core's public behaviour, in one program. To link the core for each file took longer than to compile the files.

mod allowances;
mod calendars;
mod clocks;
mod closing;
mod completion_queue;
mod connecting;
mod connection_options;
mod damaged_values;
mod deadlines;
mod declared_keys;
mod differential;
mod errors;
mod escalation;
mod eviction;
mod exact_counts;
mod failed_settlements;
mod failover;
mod faults;
#[cfg(target_os = "linux")]
mod floods;
mod folding;
#[cfg(debug_assertions)]
mod forks;
mod fuzz;
mod generated;
mod harness;
mod histories;
mod http;
mod http_keys;
#[cfg(target_os = "linux")]
mod idle;
mod learned;
mod leases;
mod lines;
mod llm;
mod long_requests;
mod machine;
mod metrics;
#[cfg(target_os = "linux")]
mod name_lookups;
mod options;
mod out_of_step;
mod outgoing;
mod override_ends;
mod overrides;
mod own_store;
mod postgres;
mod priorities;
mod processes;
mod properties;
mod reload;
#[cfg(target_os = "linux")]
mod reply_poller;
mod resilience;
mod secrets;
mod servers;
mod settled_histories;
mod settling;
mod soak;
mod stats;
mod stored;
mod stored_forms;
mod topologies;
mod tower;
mod turns;
mod units;
mod vectors;
mod waiting;
