//! A table in PostgreSQL. The machine of `swap` decides, and the statements here only read, compare and swap.

mod connections;
mod failure;
mod statements;
mod stored_table;

use std::future::Future;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::Store;
use super::key_names::KeyNames;
use super::panics::guarded;
use super::stored_key::StoredKey;
use super::swap::{
    CallId, ChangeSet, Event, FoundValue, IoOutcome, Promises, SwapIo, SwapResult, SwapServer, SwapStore, Version,
    runtime,
};
use super::url::{PostgresTable, Prepare, StoreUrl};
use crate::error::{Error, Result};
use crate::process::fork::{PerProcess, ProcessValue};
use crate::process::log::Log;
use connections::{Connection, Connections, NextConnection};
use failure::{PostgresFailure, foreign_name, refuses_options, timed_out};
use statements::Statements;
pub use stored_table::{StoredTable, TableFacts, TableSample};

/// A plan is made once and kept. It looks rows up by their keys, also if the table was small when it was made.
const PLAN_OPTIONS: &str = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off";
/// A sweep of expired rows follows so many swaps.
const SWAPS_BETWEEN_SWEEPS: u64 = 500;
/// The passes of a `clear_all` while others write.
const PASSES_OF_CLEAR: u32 = 3;
/// The most bytes of a value.
const MAX_VALUE: usize = 256 << 10;
/// A transaction that locks rows ends at the server after so long, in case its process has stopped.
const MAX_LOCKED: Duration = Duration::from_secs(1);
/// The least time that a call waits for a lock.
const LEAST_WAIT: Duration = Duration::from_millis(1);

type Parameters<'a> = [(&'a (dyn ToSql + Sync), Type)];

/// The time that an attempt to connect may take, also if a call has less.
const MAX_CONNECT: Duration = Duration::from_secs(5);

/// The servers of one URL.
pub(crate) struct Postgres {
    table: PostgresTable,
    /// With the options under which prepared statements pay.
    planned: Config,
    tls: MakeRustlsConnect,
    statements: Statements,
    connections: PerProcess<Connections>,
    swaps: AtomicU64,
    /// True while statements are prepared under names, and while the server takes the options for it.
    prepares: AtomicBool,
    plans: AtomicBool,
}

/// Opens a store in a table. It connects at the first call.
pub(crate) fn open(table: PostgresTable, names: KeyNames, timeout: Duration, log: Arc<Log>) -> Result<Arc<dyn Store>> {
    // The first runtime makes globals of the process. A fork while another thread makes them would leave them half made.
    drop(runtime()?);
    Ok(Arc::new(SwapStore::new(Postgres::new(table)?, names, timeout, log)))
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
        let mut planned = table.config.clone();
        planned.options([table.config.get_options().unwrap_or_default(), PLAN_OPTIONS].join(" "));
        let [prepares, plans] = [(); 2].map(|()| AtomicBool::new(table.prepare != Prepare::No));
        let (connections, swaps) = (PerProcess::new(), AtomicU64::new(0));
        Ok(Self { table, planned, tls, statements, connections, swaps, prepares, plans })
    }

    fn connections(&self) -> Arc<ProcessValue<Connections>> {
        self.connections.get_or_init(|| Connections::new(self.table.connections))
    }

    fn failure(&self, error: &tokio_postgres::Error) -> PostgresFailure {
        PostgresFailure::of(error, &self.table.table, &self.table.shown)
    }

    async fn connect(&self) -> Result<Connection, PostgresFailure> {
        let (client, connection) = loop {
            let plans = self.plans.load(Ordering::Relaxed);
            let config = if plans { &self.planned } else { &self.table.config };
            match config.connect(self.tls.clone()).await {
                Ok(connected) => break connected,
                Err(error) if plans && refuses_options(&error) => {
                    // A pooler is between, which may give a statement to another session.
                    self.plans.store(false, Ordering::Relaxed);
                    self.prepares.store(self.table.prepare == Prepare::Yes, Ordering::Relaxed);
                }
                Err(error) => return Err(self.failure(&error).of_no_run()),
            }
        };
        // It ends when the client is dropped.
        tokio::spawn(connection);
        Ok(Connection { client, used: Vec::new() })
    }

    /// An idle connection, or a new one. An attempt goes on if its caller gives up, so that a slow greeting is made once.
    async fn connection(self: &Arc<Self>) -> Result<Connection, PostgresFailure> {
        let connections = self.connections();
        let (told, permit) = match connections.take() {
            NextConnection::Idle(connection) => return Ok(connection),
            NextConnection::Later(told, permit) => (told, permit),
        };
        if let Some(permit) = permit {
            let postgres = Arc::clone(self);
            tokio::spawn(async move {
                let late = |_| Err(PostgresFailure::NotRun(timed_out(&postgres.table.shown, Some(MAX_CONNECT))));
                let mut next = Some(permit);
                while let Some(permit) = next {
                    let connected = tokio::time::timeout(MAX_CONNECT, postgres.connect()).await.unwrap_or_else(late);
                    next = connections.end_attempt(connected, permit);
                }
            });
        }
        told.await.unwrap_or_else(|_| Err(PostgresFailure::NotRun(timed_out(&self.table.shown, None))))
    }

    fn keep(&self, connection: Connection) {
        self.connections().keep(connection);
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
                // A pooler is between. From now on each statement is sent whole.
                Err(PostgresFailure::ForeignName(_))
                    if self.table.prepare == Prepare::Auto && Instant::now() < deadline =>
                {
                    self.prepares.store(false, Ordering::Relaxed);
                }
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
        connection: &Connection,
        statement: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, PostgresFailure> {
        connection.client.query_typed(statement, parameters).await.map_err(|error| self.failure(&error))
    }

    /// The rows of a statement that has the token as its last parameter and returns `count` rows. It is prepared if that pays.
    async fn rows_of_frequent(
        &self,
        connection: &mut Connection,
        statement: &str,
        parameters: &Parameters<'_>,
        count: usize,
    ) -> Result<Vec<Row>, PostgresFailure> {
        if !self.prepares.load(Ordering::Relaxed) {
            return self.rows(connection, statement, parameters).await;
        }
        let address = statement.as_ptr().addr();
        let Some((_, prepared)) = connection.used.iter_mut().find(|(known, _)| *known == address) else {
            connection.used.push((address, None));
            return self.rows(connection, statement, parameters).await;
        };
        let failed = |error| self.failure(&error);
        let prepared = match prepared {
            Some(prepared) => prepared,
            None => {
                let types: Vec<Type> = parameters.iter().map(|(_, of)| of.clone()).collect();
                prepared.insert(connection.client.prepare_typed(statement, &types).await.map_err(failed)?)
            }
        };
        let values: Vec<_> = parameters.iter().map(|(value, _)| *value).collect();
        let rows = connection.client.query(&*prepared, &values).await.map_err(failed)?;
        if rows.len() == count { Ok(rows) } else { Err(PostgresFailure::ForeignName(foreign_name(&self.table.shown))) }
    }

    async fn read_values(
        self: &Arc<Self>,
        keys: &[StoredKey],
        lock_for: Option<(CallId, Instant)>,
        needs_epoch: bool,
    ) -> Result<Event, PostgresFailure> {
        let keys: Vec<&[u8]> = keys.iter().map(StoredKey::as_bytes).collect();
        let mut connection = self.connection().await?;
        let Statements { token, read, read_locked, .. } = &self.statements;
        let parameters: &Parameters<'_> =
            &[(&keys, Type::BYTEA_ARRAY), (&needs_epoch, Type::BOOL), (token, Type::TEXT)];
        let rows = if let Some((call, deadline)) = lock_for {
            // The server says in time that it waits for a lock. If it says nothing, it is down.
            let wait = (deadline.saturating_duration_since(Instant::now()) * 3 / 4).clamp(LEAST_WAIT, MAX_LOCKED);
            let begin = format!(
                "BEGIN; SET LOCAL lock_timeout = '{}ms'; SET LOCAL idle_in_transaction_session_timeout = '{}ms'",
                wait.as_millis(),
                MAX_LOCKED.as_millis()
            );
            // Both travel together.
            let (begun, rows) =
                tokio::join!(self.run(&connection, &begin), self.rows(&connection, read_locked, &parameters[..2]));
            let rows = begun.and(rows)?;
            self.connections().locking.lock().insert(call, connection);
            rows
        } else {
            let rows = self.rows_of_frequent(&mut connection, read, parameters, keys.len()).await?;
            self.keep(connection);
            rows
        };
        let clock = rows.first().map(|row| row.get::<_, i64>(0) as u64);
        let epoch = rows.first().and_then(|row| row.get::<_, Option<i64>>(1)).map(|epoch| epoch as u64);
        Ok(Event::Read { clock, epoch, values: rows.iter().map(|row| found(row, 2)).collect() })
    }

    async fn swap_values(
        self: &Arc<Self>,
        sets: &[ChangeSet],
        locked: Option<CallId>,
    ) -> Result<Event, PostgresFailure> {
        let taken = locked.and_then(|call| self.connections().locking.lock().remove(&call));
        let mut connection = match taken.filter(|connection| !connection.client.is_closed()) {
            Some(connection) => connection,
            None if locked.is_none() => self.connection().await?,
            // The transaction has ended.
            None => return Err(PostgresFailure::NotRun(timed_out(&self.table.shown, None).of_contention())),
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
            (&self.statements.token, Type::TEXT),
            (&part, Type::INT4_ARRAY),
        ];
        let are_simple = data.iter().all(Option::is_some) && sets.len() == keys.len();
        let (statement, parameters) = if are_simple {
            (&self.statements.swap, &parameters[..7])
        } else {
            (&self.statements.swap_sets, parameters)
        };
        let rows = match locked {
            Some(_) if keys.is_empty() => {
                self.run(&connection, "COMMIT").await?;
                Vec::new()
            }
            Some(_) => {
                let (rows, committed) =
                    tokio::join!(self.rows(&connection, statement, parameters), self.run(&connection, "COMMIT"));
                let rows = rows?;
                committed?;
                rows
            }
            None => self.rows_of_frequent(&mut connection, statement, parameters, keys.len()).await?,
        };
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
        Promises { marks_are_versions: true, locks: true, max_value: MAX_VALUE }
    }

    fn max_calls(&self) -> usize {
        self.table.connections
    }

    fn read(
        self: Arc<Self>,
        keys: Vec<StoredKey>,
        lock_for: Option<CallId>,
        needs_epoch: bool,
        deadline: Instant,
    ) -> IoOutcome {
        Box::pin(async move {
            let lock_for = lock_for.map(|call| (call, deadline));
            let answer = self.ask(deadline, || self.read_values(&keys, lock_for, needs_epoch)).await;
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
        self.run_apart(deadline, |postgres, connection| async move {
            let (end, length) = (end_of(prefix), length as i32);
            let parameters: &Parameters<'_> = &[(&prefix, Type::BYTEA), (&end, Type::BYTEA), (&length, Type::INT4)];
            let rows = postgres.rows(&connection, &postgres.statements.scan, parameters).await?;
            let clock = rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64);
            Ok((clock, rows.iter().map(|row| row.get(1)).collect()))
        })
    }

    /// Deletes in parts, each in a statement of its own. A row that a call has locked is left to the next pass.
    fn delete(self: Arc<Self>, prefix: &[u8], length: usize, timeout: Duration) -> Result<Vec<Vec<u8>>> {
        let (end, length) = (end_of(prefix), length as i32);
        let keys = |statement: fn(&Statements) -> &String, from: &Vec<u8>| {
            let end = &end;
            self.run_apart(Instant::now() + timeout, |postgres, connection| async move {
                let parameters: &Parameters<'_> = &[(from, Type::BYTEA), (end, Type::BYTEA), (&length, Type::INT4)];
                let rows = postgres.rows(&connection, statement(&postgres.statements), parameters).await?;
                Ok(rows.iter().map(|row| row.get(0)).collect::<Vec<Vec<u8>>>())
            })
        };
        let mut passes = 0;
        loop {
            let mut from = prefix.to_vec();
            while let Some(mut last) = keys(|statements| &statements.delete, &from)?.pop() {
                last.push(0);
                from = last;
            }
            let left = keys(|statements| &statements.left, &prefix.to_vec())?;
            passes += 1;
            if left.is_empty() || passes == PASSES_OF_CLEAR {
                return Ok(left);
            }
        }
    }

    fn close(&self) {
        if let Some(connections) = self.connections.get() {
            connections.close();
        }
    }
}
