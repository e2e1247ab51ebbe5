//! The table of a store, for programs that examine it or look at all of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::Row;
use tokio_postgres::config::Host;
use tokio_postgres::types::Type;

use super::failure::PostgresFailure;
use super::{Connection, Parameters, Postgres, end_of, of_url};
use crate::error::Result;
use crate::policy::Policy;
use crate::store::key_names::KeyNames;
use crate::store::stored_key::StoredKey;
use crate::store::swap::value_of;

/// Rows that one statement returns.
const PAGE: usize = 500;
/// The pause between two pages, so that calls come first.
const PAUSE: Duration = Duration::from_millis(2);

/// The table of a store.
pub struct StoredTable {
    postgres: Arc<Postgres>,
    names: KeyNames,
    timeout: Duration,
    /// The key behind which the next page begins.
    next: Vec<u8>,
}

/// The facts about a server and the table, as far as the user may know them.
#[derive(Debug, Clone, Default)]
pub struct TableFacts {
    /// The version of the server, as in 15.18.
    pub version: String,
    /// As in 150018.
    pub version_number: i64,
    /// True for a standby, and for a server or a user that may not write.
    pub is_read_only: bool,
    /// The name of the table.
    pub table: String,
    /// True if there is such a table.
    pub is_there: bool,
    /// The rights that the user lacks on the table.
    pub lacks: String,
    /// The rows that are in use.
    pub live_rows: i64,
    /// The rows that a vacuum can remove.
    pub dead_rows: i64,
    /// The bytes of the table with its index.
    pub bytes: i64,
    /// The age of the oldest snapshot of the database in seconds. 0 if the user may not know that.
    pub snapshot_seconds: f64,
    /// The same in transactions.
    pub snapshot_transactions: i64,
    /// The connections in use.
    pub connections: i64,
    /// The most connections.
    pub max_connections: i64,
    /// True if others can read the statements on the network.
    pub is_readable: bool,
    /// True if two connections share one session of the server.
    pub is_pooled: bool,
    /// The clock of the server, in seconds since 1970.
    pub clock: f64,
    /// The time that a question took.
    pub round_trip: Duration,
}

/// The rows of a reading: their names and values.
#[derive(Debug, Default)]
pub struct TableSample {
    /// The rows of the table, as far as that is known.
    pub keys: u64,
    /// The clock of the server, in microseconds since 1970.
    pub now: u64,
    /// The rows that were asked for by their names.
    pub tracked: Vec<(Vec<u8>, Vec<u8>)>,
    /// The others.
    pub found: Vec<(Vec<u8>, Vec<u8>)>,
}

const FACTS: &str = "SELECT current_setting('server_version'), current_setting('server_version_num')::int8,
    pg_is_in_recovery() OR current_setting('transaction_read_only')::bool,
    to_regclass($1) IS NOT NULL,
    (SELECT coalesce(string_agg(name, ', '), '') FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) AS rights(name)
        WHERE NOT has_table_privilege(to_regclass($1), name)),
    coalesce(n_live_tup, 0), coalesce(n_dead_tup, 0), coalesce(pg_total_relation_size(to_regclass($1)), 0),
    coalesce((SELECT max(extract(epoch FROM clock_timestamp() - xact_start)) FROM pg_stat_activity
        WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()), 0)::float8,
    coalesce((SELECT max(age(backend_xmin)) FROM pg_stat_activity WHERE datname = current_database()), 0)::int8,
    (SELECT sum(numbackends) FROM pg_stat_database)::int8, current_setting('max_connections')::int8,
    coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false),
    extract(epoch FROM clock_timestamp())::float8, pg_backend_pid()
    FROM (SELECT) AS one LEFT JOIN pg_stat_all_tables ON relid = to_regclass($1)";

impl StoredTable {
    /// The table of a URL.
    ///
    /// # Errors
    /// `config_invalid` for the URL.
    pub fn open(url: &str, names: &KeyNames, timeout: Duration) -> Result<Self> {
        let postgres = Arc::new(Postgres::new(of_url(url)?)?);
        Ok(Self { postgres, next: names.prefix.as_bytes().to_vec(), names: names.clone(), timeout })
    }

    /// Asks the server for the facts.
    ///
    /// # Errors
    /// Those of the server.
    pub fn examine(&self) -> Result<TableFacts> {
        let deadline = Instant::now() + self.timeout;
        self.postgres.run_apart(deadline, |postgres, connection| async move {
            let table = &postgres.table.table;
            let parameters: &Parameters<'_> = &[(table, Type::TEXT)];
            let mut facts = facts(&ask(&postgres, &connection, FACTS, parameters).await?);
            let began = Instant::now();
            let session: i32 = ask(&postgres, &connection, "SELECT pg_backend_pid()", &[]).await?.get(0);
            facts.round_trip = began.elapsed();
            let other = postgres.connect().await?;
            facts.is_pooled = session == ask(&postgres, &other, "SELECT pg_backend_pid()", &[]).await?.get::<_, i32>(0);
            let is_local = |host: &Host| match host {
                Host::Tcp(name) => {
                    name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
                }
                #[cfg(unix)]
                Host::Unix(_) => true,
            };
            facts.is_readable = facts.is_readable && !postgres.table.config.get_hosts().iter().all(is_local);
            facts.table.clone_from(table);
            Ok(facts)
        })
    }

    /// The name of a policy's key in the table.
    #[must_use]
    pub fn name(&self, policy: &Policy, key: &str) -> Vec<u8> {
        StoredKey::new(&self.names, policy.name(), key).as_bytes().to_vec()
    }

    /// Reads the rows with these names and up to `most` others of the prefix, and goes on where the last call ended.
    ///
    /// # Errors
    /// Those of the server.
    pub fn read(&mut self, tracked: &[Vec<u8>], most: usize) -> Result<TableSample> {
        let prefix = self.names.prefix.as_bytes();
        let (end, length) = (end_of(prefix), (prefix.len() + StoredKey::DIGEST) as i32);
        let start = self.next.clone();
        let pages = most.div_ceil(PAGE).max(1) as u32;
        let (start, end, deadline) = (&start, &end, Instant::now() + self.timeout + PAUSE * pages);
        let (sample, next) = self.postgres.run_apart(deadline, |postgres, connection| async move {
            let table = &postgres.table.table;
            let columns = "(extract(epoch FROM clock_timestamp()) * 1000000)::int8, key, data";
            let mut sample = TableSample::default();
            let count: &Parameters<'_> = &[(table, Type::TEXT)];
            let counted = "SELECT coalesce(max(reltuples), 0)::int8 FROM pg_class WHERE oid = to_regclass($1)";
            sample.keys = ask(&postgres, &connection, counted, count).await?.get::<_, i64>(0).max(0) as u64;
            let named: &Parameters<'_> = &[(&tracked, Type::BYTEA_ARRAY)];
            let statement = format!("SELECT {columns} FROM {table} WHERE key = ANY($1)");
            let rows = postgres.rows(&connection, &statement, named).await?;
            sample.tracked = sample.take(&rows);
            let mut next = start.clone();
            while sample.found.len() < most {
                let wanted = PAGE.min(most - sample.found.len()) as i64;
                let parameters: &Parameters<'_> =
                    &[(&next, Type::BYTEA), (end, Type::BYTEA), (&length, Type::INT4), (&wanted, Type::INT8)];
                let page = "WHERE key > $1 AND key < $2 AND length(key) = $3 ORDER BY key LIMIT $4";
                let rows =
                    postgres.rows(&connection, &format!("SELECT {columns} FROM {table} {page}"), parameters).await?;
                let found = sample.take(&rows);
                sample.found.extend(found);
                next = rows.last().map_or_else(Vec::new, |row| row.get(1));
                if (rows.len() as i64) < wanted {
                    next.clear();
                    break;
                }
                tokio::time::sleep(PAUSE).await;
            }
            Ok((sample, next))
        })?;
        self.next = if next.is_empty() { prefix.to_vec() } else { next };
        Ok(sample)
    }
}

impl TableSample {
    /// The names and values of rows that hold usage.
    fn take(&mut self, rows: &[Row]) -> Vec<(Vec<u8>, Vec<u8>)> {
        if let Some(row) = rows.last() {
            self.now = row.get::<_, i64>(0) as u64;
        }
        rows.iter().filter_map(|row| Some((row.get(1), value_of(row.get(2))?.to_vec()))).collect()
    }
}

async fn ask(
    postgres: &Postgres,
    connection: &Connection,
    statement: &str,
    parameters: &Parameters<'_>,
) -> Result<Row, PostgresFailure> {
    let mut rows = postgres.rows(connection, statement, parameters).await?;
    rows.pop().ok_or(PostgresFailure::Conflict)
}

fn facts(row: &Row) -> TableFacts {
    TableFacts {
        version: row.get(0),
        version_number: row.get(1),
        is_read_only: row.get(2),
        is_there: row.get(3),
        lacks: row.get(4),
        live_rows: row.get(5),
        dead_rows: row.get(6),
        bytes: row.get(7),
        snapshot_seconds: row.get(8),
        snapshot_transactions: row.get(9),
        connections: row.get(10),
        max_connections: row.get(11),
        is_readable: !row.get::<_, bool>(12),
        clock: row.get(13),
        ..TableFacts::default()
    }
}
