//! The statements: they read, compare and swap, and know no rule.

use std::hash::{BuildHasher, RandomState};

/// Takes the lock under which one process makes the table. The number names no table of an application.
const LOCK_FOR_TABLE: &str = "SELECT pg_advisory_xact_lock(7527185443001)";
/// Blocks of the table that one sweep looks through.
pub(super) const BLOCKS_OF_SWEEP: i64 = 64;

/// The statements for one table. `read`, `swap` and `swap_sets` do nothing unless they are given `token`.
pub(super) struct Statements {
    /// A random text. Behind a pooler a name may stand for the statement of another process.
    pub(super) token: String,
    pub(super) ping: String,
    pub(super) read: String,
    /// As `read`, and it locks the rows until the transaction ends.
    pub(super) read_locked: String,
    /// For sets of one change each that delete nothing. It takes half the time of `swap_sets`.
    pub(super) swap: String,
    pub(super) swap_sets: String,
    pub(super) scan: String,
    pub(super) delete: String,
    /// The first keys that are there.
    pub(super) left: String,
    pub(super) sweep: String,
    pub(super) create: String,
}

/// The DDL of a table.
pub(crate) fn ddl(table: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {table} (\n    \
             key bytea PRIMARY KEY,\n    \
             version bytea NOT NULL,\n    \
             data bytea NOT NULL,\n    \
             expires_at bigint NOT NULL\n\
         ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);"
    )
}

impl Statements {
    pub(super) fn new(table: &str, is_durable: bool) -> Self {
        // Microseconds since 1970.
        let clock = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        // The server's start, and its last recovery from a crash, which resets these counts. Every user may read both.
        let epoch = "CASE WHEN $2 THEN hashtextextended(
            concat(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()), 0) END";
        let durability = if is_durable { "on" } else { "off" };
        let token = format!("{:016x}", RandomState::new().hash_one(0));
        Self {
            token: token.clone(),
            ping: format!("SELECT 1 FROM {table} LIMIT 0"),
            read: format!(
                "WITH clock AS MATERIALIZED (SELECT {clock} AS now, {epoch} AS epoch WHERE $3 = '{token}')
                 SELECT clock.now, clock.epoch, stored.version, stored.data
                 FROM clock, unnest($1::bytea[]) WITH ORDINALITY AS given(key, number)
                 LEFT JOIN LATERAL (SELECT version, data FROM {table} WHERE key = given.key OFFSET 0) AS stored ON true
                 ORDER BY given.number"
            ),
            // The rows are locked in the order of their keys, so that two processes that lock the same rows wait for each other only
            // once. The clock is read behind the locks.
            read_locked: format!(
                "WITH locked AS MATERIALIZED (
                     SELECT key, version, data FROM {table} WHERE key = ANY($1::bytea[]) ORDER BY key FOR UPDATE
                 ), clock AS MATERIALIZED (SELECT {clock} AS now, {epoch} AS epoch FROM (SELECT count(*) FROM locked) AS behind)
                 SELECT clock.now, clock.epoch, stored.version, stored.data
                 FROM clock, unnest($1::bytea[]) WITH ORDINALITY AS given(key, number)
                 LEFT JOIN locked AS stored ON stored.key = given.key ORDER BY given.number"
            ),
            // A row that another process has locked is skipped, which is a lost swap: to wait for it here would be a deadlock. A locked
            // row keeps its place, by which it is found without its index. If two processes insert a key, the second inserts nothing.
            // The clock is read behind the locks. So a server that stalls between them charges nothing in the past, and a call that
            // loses does not go on with a moment before the value that it has lost to.
            swap: format!(
                "WITH given AS MATERIALIZED (
                     SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[])
                     WITH ORDINALITY AS given(key, old, data, expires_at, from_moment, until_moment, number) WHERE $7 = '{token}'
                 ), locked AS MATERIALIZED (
                     SELECT ctid AS place, key, version, data FROM {table}
                     WHERE key = ANY($1::bytea[]) ORDER BY key FOR NO KEY UPDATE SKIP LOCKED
                 ), clock AS MATERIALIZED (
                     SELECT {clock} AS now, set_config('synchronous_commit', '{durability}', true)
                     FROM (SELECT count(*) FROM locked) AS behind
                 ), updated AS (
                     UPDATE {table} AS stored
                     SET version = substring(given.data FOR 8), data = given.data, expires_at = given.expires_at
                     FROM given CROSS JOIN clock JOIN locked ON locked.key = given.key
                     WHERE stored.ctid = locked.place AND given.old = locked.version
                         AND clock.now BETWEEN given.from_moment AND given.until_moment
                     RETURNING given.number
                 ), inserted AS (
                     INSERT INTO {table} (key, version, data, expires_at)
                     SELECT given.key, substring(given.data FOR 8), given.data, given.expires_at FROM given CROSS JOIN clock
                     WHERE given.old IS NULL AND clock.now BETWEEN given.from_moment AND given.until_moment
                     ORDER BY given.key ON CONFLICT (key) DO NOTHING RETURNING key
                 ), results AS (
                     SELECT given.number, given.key, clock.now,
                         updated.number IS NOT NULL OR inserted.key IS NOT NULL AS done, locked.version, locked.data
                     FROM given CROSS JOIN clock LEFT JOIN updated ON updated.number = given.number
                     LEFT JOIN inserted ON inserted.key = given.key LEFT JOIN locked ON locked.key = given.key
                 )
                 SELECT now, done, CASE WHEN NOT done THEN coalesce(results.version, stored.version) END,
                     CASE WHEN NOT done THEN coalesce(results.data, stored.data) END
                 FROM results LEFT JOIN LATERAL (
                     SELECT version, data FROM {table} WHERE key = results.key AND NOT results.done OFFSET 0
                 ) AS stored ON true
                 ORDER BY results.number"
            ),
            // The same for sets of several keys, which are swapped whole or not at all. If an insert loses to another process, a
            // division by 0 takes the rest of its set back.
            swap_sets: format!(
                "WITH given AS MATERIALIZED (
                     SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[], $8::int[])
                     WITH ORDINALITY AS given(key, old, data, expires_at, from_moment, until_moment, part, number)
                     WHERE $7 = '{token}'
                 ), locked AS MATERIALIZED (
                     SELECT key, version, data FROM {table} WHERE key = ANY($1::bytea[]) ORDER BY key FOR UPDATE SKIP LOCKED
                 ), clock AS MATERIALIZED (
                     SELECT {clock} AS now, set_config('synchronous_commit', '{durability}', true)
                     FROM (SELECT count(*) FROM locked) AS behind
                 ), judged AS MATERIALIZED (
                     SELECT given.*, locked.version, locked.data AS found, clock.now,
                         bool_and(given.old IS NOT DISTINCT FROM locked.version
                             AND clock.now BETWEEN given.from_moment AND given.until_moment) OVER (PARTITION BY given.part) AS fits,
                         count(*) OVER (PARTITION BY given.part) AS size
                     FROM given CROSS JOIN clock LEFT JOIN locked ON locked.key = given.key
                 ), updated AS (
                     UPDATE {table} AS stored SET version = substring(judged.data FOR 8), data = judged.data, expires_at = judged.expires_at
                     FROM judged WHERE stored.key = judged.key AND judged.fits AND judged.old IS NOT NULL AND judged.data IS NOT NULL
                     RETURNING judged.number
                 ), deleted AS (
                     DELETE FROM {table} AS stored USING judged
                     WHERE stored.key = judged.key AND judged.fits AND judged.old IS NOT NULL AND judged.data IS NULL
                     RETURNING judged.number
                 ), inserted AS (
                     INSERT INTO {table} (key, version, data, expires_at)
                     SELECT key, substring(data FOR 8), data, expires_at FROM judged
                     WHERE fits AND old IS NULL AND data IS NOT NULL ORDER BY key
                     ON CONFLICT (key) DO NOTHING RETURNING key
                 ), results AS MATERIALIZED (
                     SELECT judged.*, judged.fits AND (
                             judged.old IS NULL AND judged.data IS NULL
                             OR judged.number IN (SELECT number FROM updated UNION ALL SELECT number FROM deleted)
                             OR judged.key IN (SELECT key FROM inserted)
                         ) AS done
                     FROM judged
                 )
                 SELECT now, done, CASE WHEN NOT done THEN coalesce(results.version, stored.version) END,
                     CASE WHEN NOT done THEN coalesce(results.found, stored.data) END,
                     CASE WHEN fits AND NOT done AND size > 1 THEN 1 / (size - size) END
                 FROM results LEFT JOIN LATERAL (
                     SELECT version, data FROM {table} WHERE key = results.key AND NOT results.done OFFSET 0
                 ) AS stored ON true
                 ORDER BY results.number"
            ),
            scan: format!(
                "SELECT {clock}, data FROM {table} WHERE key >= $1 AND key < $2 AND length(key) = $3 LIMIT 100000"
            ),
            delete: format!(
                "WITH these AS MATERIALIZED (
                     SELECT key FROM {table} WHERE key >= $1 AND key < $2 AND length(key) = $3
                     ORDER BY key LIMIT 1000 FOR UPDATE SKIP LOCKED
                 ), gone AS (
                     DELETE FROM {table} WHERE key = ANY(ARRAY(SELECT key FROM these)) RETURNING key
                 )
                 SELECT key FROM these ORDER BY key DESC LIMIT 1"
            ),
            left: format!("SELECT key FROM {table} WHERE key >= $1 AND key < $2 AND length(key) = $3 LIMIT 10"),
            sweep: format!(
                "WITH size AS MATERIALIZED (
                     SELECT greatest(pg_relation_size('{table}') / current_setting('block_size')::int, 1) AS blocks
                 ), place AS MATERIALIZED (
                     SELECT floor(random() * ceil(blocks / {BLOCKS_OF_SWEEP}::float))::bigint * {BLOCKS_OF_SWEEP} AS first FROM size
                 )
                 DELETE FROM {table} WHERE ctid = ANY(ARRAY(
                     SELECT ctid FROM {table}
                     WHERE ctid >= (SELECT format('(%s,0)', first)::tid FROM place)
                     AND ctid < (SELECT format('(%s,0)', first + {BLOCKS_OF_SWEEP})::tid FROM place)
                     AND expires_at < {clock} - 1000000 AND pg_try_advisory_xact_lock(7527185443002)
                     LIMIT 1000 FOR UPDATE SKIP LOCKED
                 ))"
            ),
            create: format!("BEGIN; {LOCK_FOR_TABLE}; {} COMMIT", ddl(table)),
        }
    }
}
