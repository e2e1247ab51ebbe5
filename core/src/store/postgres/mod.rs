//! A table in PostgreSQL. The machine of `swap` decides, and the statements here only read, compare and swap.

mod failure;
mod statements;

use std::collections::HashMap;
use std::future::Future;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, oneshot};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::Store;
use super::key_names::KeyNames;
use super::panics::guarded;
use super::stored_key::StoredKey;
use super::swap::{
    CallId, ChangeSet, Event, FoundValue, IoOutcome, Promises, SwapIo, SwapResult, SwapServer, SwapStore, Version,
    runtime,
};
use super::url::{PostgresTable, StoreUrl};
use crate::error::{Error, Result};
use crate::process::fork::{PerProcess, ProcessValue};
use crate::process::lock::Mutex;
use failure::{PostgresFailure, timed_out};
use statements::Statements;

/// A sweep of expired rows follows so many swaps.
const SWAPS_BETWEEN_SWEEPS: u64 = 500;
/// A transaction that locks rows ends at the server after so long, in case its process has stopped.
const MAX_LOCKED: Duration = Duration::from_secs(1);

type Parameters<'a> = [(&'a (dyn ToSql + Sync), Type)];

/// The time that an attempt to connect may take, also if a call has less.
const MAX_CONNECT: Duration = Duration::from_secs(5);

/// A connection, and the statements that are prepared on it, by their address.
struct Connection {
    client: Client,
    prepared: Vec<(usize, Statement)>,
}

/// The servers of one URL.
pub(crate) struct Postgres {
    table: PostgresTable,
    tls: MakeRustlsConnect,
    statements: Statements,
    connections: PerProcess<Connections>,
    swaps: AtomicU64,
}

/// The connections of a process.
struct Connections {
    idle: Mutex<Vec<Connection>>,
    /// Those in a transaction that has locked rows, by the call that locked them.
    locking: Mutex<HashMap<CallId, Connection>>,
    /// The attempts to connect that may go on at once.
    attempts: Semaphore,
}

/// Opens a store in a table. It connects at the first call.
pub(crate) fn open(table: PostgresTable, names: KeyNames, timeout: Duration) -> Result<Arc<dyn Store>> {
    // The first runtime makes globals of the process. A fork while another thread makes them would leave them half made.
    drop(runtime()?);
    Ok(Arc::new(SwapStore::new(Postgres::new(table)?, names, timeout)))
}

/// Makes the table of a URL. Returns its name.
///
/// # Errors
/// `config_invalid` for the URL, and the errors of the server.
pub fn set_up(url: &str, timeout: Duration) -> Result<String> {
    let postgres = Arc::new(Postgres::new(of_url(url)?)?);
    let table = postgres.table.table.clone();
    postgres.run_apart(Instant::now() + timeout, |postgres, connection| async move {
        postgres.run(&connection, &postgres.statements.create).await
    })?;
    Ok(table)
}

/// The DDL of the table of a URL.
///
/// # Errors
/// `config_invalid` for the URL.
pub fn ddl(url: &str) -> Result<String> {
    Ok(statements::ddl(&of_url(url)?.table))
}

fn of_url(url: &str) -> Result<PostgresTable> {
    match StoreUrl::parse(url)? {
        StoreUrl::Postgres(table) => Ok(*table),
        _ => Err(Error::config("only a store URL of postgresql:// needs a table: other stores need no setup")),
    }
}

impl Postgres {
    fn new(table: PostgresTable) -> Result<Self> {
        let tls = MakeRustlsConnect::new(super::redis::tls_config(&table.certificates)?);
        let statements = Statements::new(&table.table, table.is_durable);
        Ok(Self { table, tls, statements, connections: PerProcess::new(), swaps: AtomicU64::new(0) })
    }

    fn connections(&self) -> Arc<ProcessValue<Connections>> {
        self.connections.get_or_init(|| Connections {
            idle: Mutex::default(),
            locking: Mutex::default(),
            attempts: Semaphore::new(self.table.connections),
        })
    }

    fn failure(&self, error: &tokio_postgres::Error) -> PostgresFailure {
        PostgresFailure::of(error, &self.table.table, &self.table.shown)
    }

    async fn connect(&self) -> Result<Connection, PostgresFailure> {
        let connected = self.table.config.connect(self.tls.clone()).await;
        let (client, connection) = connected.map_err(|error| self.failure(&error).of_no_run())?;
        // It ends when the client is dropped.
        tokio::spawn(connection);
        Ok(Connection { client, prepared: Vec::new() })
    }

    /// An idle connection, or a new one. An attempt goes on if its caller gives up, so that a slow greeting is made once.
    async fn connection(self: &Arc<Self>) -> Result<Connection, PostgresFailure> {
        let connections = self.connections();
        let mut idle = std::iter::from_fn(|| connections.idle.lock().pop());
        if let Some(connection) = idle.find(|connection| !connection.client.is_closed()) {
            return Ok(connection);
        }
        let (postgres, (tells, told)) = (Arc::clone(self), oneshot::channel());
        tokio::spawn(async move {
            let _permit = connections.attempts.acquire().await;
            let late = |_| Err(PostgresFailure::NotRun(timed_out(&postgres.table.shown, Some(MAX_CONNECT))));
            let connected = tokio::time::timeout(MAX_CONNECT, postgres.connect()).await.unwrap_or_else(late);
            if let Err(Ok(connection)) = tells.send(connected) {
                postgres.keep(connection);
            }
        });
        told.await.unwrap_or_else(|_| Err(PostgresFailure::NotRun(timed_out(&self.table.shown, None))))
    }

    fn keep(&self, connection: Connection) {
        let connections = self.connections();
        let mut idle = connections.idle.lock();
        if idle.len() < self.table.connections && !connection.client.is_closed() {
            idle.push(connection);
        }
    }

    /// Runs a question until its deadline, and repeats one that conflicts with another process.
    async fn ask<T, F: Future<Output = Result<T, PostgresFailure>>>(
        &self,
        deadline: Instant,
        mut question: impl FnMut() -> F,
    ) -> Result<T, PostgresFailure> {
        let mut has_created = false;
        loop {
            let Ok(answer) = tokio::time::timeout_at(deadline.into(), question()).await else {
                return Err(PostgresFailure::Unknown(timed_out(&self.table.shown, None)));
            };
            match answer {
                Err(PostgresFailure::Conflict) if Instant::now() < deadline => {}
                Err(PostgresFailure::NoTable(_)) if self.table.creates && !has_created => {
                    has_created = true;
                    self.run(&self.connect().await?, &self.statements.create).await?;
                }
                answer => return answer,
            }
        }
    }

    async fn run(&self, connection: &Connection, statements: &str) -> Result<(), PostgresFailure> {
        connection.client.batch_execute(statements).await.map_err(|error| self.failure(&error))
    }

    async fn rows(
        &self,
        Connection { client, prepared }: &mut Connection,
        statement: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, PostgresFailure> {
        let failed = |error| self.failure(&error);
        if !self.table.prepares {
            return client.query_typed(statement, parameters).await.map_err(failed);
        }
        let address = statement.as_ptr().addr();
        let known = match prepared.iter().find(|(known, _)| *known == address) {
            Some((_, known)) => known.clone(),
            None => {
                let types: Vec<Type> = parameters.iter().map(|(_, of)| of.clone()).collect();
                let made = client.prepare_typed(statement, &types).await.map_err(failed)?;
                prepared.push((address, made.clone()));
                made
            }
        };
        let values: Vec<_> = parameters.iter().map(|(value, _)| *value).collect();
        client.query(&known, &values).await.map_err(failed)
    }

    async fn read_values(
        self: &Arc<Self>,
        keys: &[StoredKey],
        lock_for: Option<CallId>,
    ) -> Result<Event, PostgresFailure> {
        let keys: Vec<&[u8]> = keys.iter().map(StoredKey::as_bytes).collect();
        let mut connection = self.connection().await?;
        let statement = match lock_for {
            None => &self.statements.read,
            Some(_) => {
                let begin = format!(
                    "BEGIN; SET LOCAL lock_timeout = '{0}ms'; SET LOCAL idle_in_transaction_session_timeout = '{0}ms'",
                    MAX_LOCKED.as_millis()
                );
                self.run(&connection, &begin).await?;
                &self.statements.read_locked
            }
        };
        let rows = self.rows(&mut connection, statement, &[(&keys, Type::BYTEA_ARRAY)]).await?;
        match lock_for {
            None => self.keep(connection),
            Some(call) => drop(self.connections().locking.lock().insert(call, connection)),
        }
        let clock = rows.first().map(|row| row.get::<_, i64>(0) as u64);
        Ok(Event::Read { clock, values: rows.iter().map(|row| found(row, 1)).collect() })
    }

    async fn swap_values(
        self: &Arc<Self>,
        sets: &[ChangeSet],
        locked: Option<CallId>,
    ) -> Result<Event, PostgresFailure> {
        let taken = locked.and_then(|call| self.connections().locking.lock().remove(&call));
        let mut connection = match (taken, locked) {
            (Some(connection), _) => connection,
            // The transaction has ended.
            (None, Some(_)) => return Err(PostgresFailure::NotRun(timed_out(&self.table.shown, None).of_contention())),
            (None, None) => self.connection().await?,
        };
        let changes = || sets.iter().flat_map(|set| &set.changes);
        let parts = || sets.iter().enumerate().flat_map(|(part, set)| set.changes.iter().map(move |_| (part, set)));
        let part: Vec<i32> = parts().map(|(part, _)| part as i32).collect();
        let from: Vec<i64> = parts().map(|(_, set)| set.from as i64).collect();
        let until: Vec<i64> = parts().map(|(_, set)| set.until as i64).collect();
        let keys: Vec<&[u8]> = changes().map(|change| change.key.as_bytes()).collect();
        let old: Vec<Option<&[u8]>> = changes().map(|change| change.version.as_deref()).collect();
        let data: Vec<Option<&[u8]>> = changes().map(|change| change.data.as_deref()).collect();
        let expires_at: Vec<i64> = changes().map(|change| change.expires_at as i64).collect();
        let parameters: &Parameters<'_> = &[
            (&keys, Type::BYTEA_ARRAY),
            (&old, Type::BYTEA_ARRAY),
            (&data, Type::BYTEA_ARRAY),
            (&expires_at, Type::INT8_ARRAY),
            (&from, Type::INT8_ARRAY),
            (&until, Type::INT8_ARRAY),
            (&part, Type::INT4_ARRAY),
        ];
        let are_simple = data.iter().all(Option::is_some) && sets.len() == keys.len();
        let rows = match (keys.len(), are_simple) {
            (0, _) => Vec::new(),
            (_, true) => self.rows(&mut connection, &self.statements.swap, &parameters[..6]).await?,
            (_, false) => self.rows(&mut connection, &self.statements.swap_sets, parameters).await?,
        };
        if locked.is_some() {
            self.run(&connection, "COMMIT").await?;
        }
        if self.swaps.fetch_add(1, Ordering::Relaxed) % SWAPS_BETWEEN_SWEEPS == SWAPS_BETWEEN_SWEEPS - 1 {
            let postgres = Arc::clone(self);
            tokio::spawn(async move {
                // One that fails is made again later.
                let _ = postgres.run(&connection, &postgres.statements.sweep).await;
                postgres.keep(connection);
            });
        } else {
            self.keep(connection);
        }
        let clock = rows.first().map(|row| row.get::<_, i64>(0) as u64);
        let result = |row: &Row| if row.get(1) { SwapResult::Done } else { SwapResult::Lost(found(row, 2)) };
        Ok(Event::Swapped { clock, results: rows.iter().map(result).collect() })
    }

    /// Runs a rare question on a thread and a connection of its own, so that it disturbs no call.
    fn run_apart<T, F>(
        self: &Arc<Self>,
        deadline: Instant,
        question: impl Fn(Arc<Self>, Connection) -> F + Sync,
    ) -> Result<T>
    where
        T: Send,
        F: Future<Output = Result<T, PostgresFailure>>,
    {
        let run = || {
            let runtime = runtime()?;
            let asked = || async { question(Arc::clone(self), self.connect().await?).await };
            runtime.block_on(self.ask(deadline, asked)).map_err(|failure| failure.into_error(&self.table.shown))
        };
        guarded(|| std::thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

/// The version and the value in a row.
fn found(row: &Row, column: usize) -> Option<FoundValue> {
    let version: Option<&[u8]> = row.get(column);
    let data: Option<Vec<u8>> = row.get(column + 1);
    Some(FoundValue { version: Version::from_slice(version?), data: data? })
}

/// The first bytes behind all that begin with these.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while end.pop_if(|last| *last == u8::MAX).is_some() {}
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

impl SwapIo for Postgres {
    fn promises(&self) -> Promises {
        Promises { marks_are_versions: true, locks: true }
    }

    fn max_calls(&self) -> usize {
        self.table.connections
    }

    fn read(self: Arc<Self>, keys: Vec<StoredKey>, lock_for: Option<CallId>, deadline: Instant) -> IoOutcome {
        Box::pin(async move {
            let answer = self.ask(deadline, || self.read_values(&keys, lock_for)).await;
            answer.unwrap_or_else(|failure| failure.into_event(&self.table.shown))
        })
    }

    fn swap(self: Arc<Self>, sets: Vec<ChangeSet>, locked: Option<CallId>, deadline: Instant) -> IoOutcome {
        Box::pin(async move {
            let answer = self.ask(deadline, || self.swap_values(&sets, locked)).await;
            answer.unwrap_or_else(|failure| failure.into_event(&self.table.shown))
        })
    }
}

impl SwapServer for Postgres {
    fn ping(self: Arc<Self>, deadline: Instant) -> Result<()> {
        self.run_apart(deadline, |postgres, connection| async move {
            postgres.run(&connection, &postgres.statements.ping).await
        })
    }

    fn scan(self: Arc<Self>, prefix: &[u8], length: usize, deadline: Instant) -> Result<(u64, Vec<Vec<u8>>)> {
        self.run_apart(deadline, |postgres, mut connection| async move {
            let (end, length) = (end_of(prefix), length as i32);
            let parameters: &Parameters<'_> = &[(&prefix, Type::BYTEA), (&end, Type::BYTEA), (&length, Type::INT4)];
            let rows = postgres.rows(&mut connection, &postgres.statements.scan, parameters).await?;
            let clock = rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64);
            Ok((clock, rows.iter().map(|row| row.get(1)).collect()))
        })
    }

    /// Deletes in parts, each in a statement of its own. A key that is written meanwhile stays.
    fn delete(self: Arc<Self>, prefix: &[u8], length: usize, timeout: Duration) -> Result<()> {
        let end = end_of(prefix);
        let mut from = prefix.to_vec();
        loop {
            let (start, end) = (&from, &end);
            let last = self.run_apart(Instant::now() + timeout, |postgres, mut connection| async move {
                let length = length as i32;
                let parameters: &Parameters<'_> = &[(start, Type::BYTEA), (end, Type::BYTEA), (&length, Type::INT4)];
                let rows = postgres.rows(&mut connection, &postgres.statements.delete, parameters).await?;
                Ok(rows.first().map(|row| row.get::<_, Vec<u8>>(0)))
            })?;
            let Some(mut last) = last else { return Ok(()) };
            last.push(0);
            from = last;
        }
    }

    fn close(&self) {
        if let Some(connections) = self.connections.get() {
            connections.idle.lock().clear();
        }
    }
}
