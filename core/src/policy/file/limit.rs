//! One limit of a policy file.

use super::super::notation;
use super::option_value::{choice, duration, notation_error, unknown_name, whole_number};
use super::tree::{FileError, Key, Node, Position, Value};
use crate::algorithm::{Algorithm, Anchor, DEFAULT_TTL, Limit, MAX_COUNT, MAX_PRECISION, Period};
use crate::error::Error;

/// The names in a limit that is a map.
pub(super) const LIMIT_NAMES: [&str; 11] =
    ["algorithm", "count", "unit", "period", "burst", "from", "in", "initial", "precision", "ttl", "limit"];

/// A limit and its position.
pub(super) struct LocatedLimit {
    pub(super) limit: Limit,
    pub(super) position: Position,
}

/// The limits of a notation, or the one limit of a map.
pub(super) fn limits(node: &Node) -> Result<Vec<LocatedLimit>, FileError> {
    match &node.value {
        Value::Text(text) => {
            let limits = notation::scan(&text.text).map_err(|error| notation_error(&error, text, node.position))?;
            let located = |(column, limit)| LocatedLimit { limit, position: text.position(column, node.position) };
            Ok(limits.into_iter().map(located).collect())
        }
        Value::Map(entries) => {
            Ok(vec![LocatedLimit { limit: limit(entries, node.position)?, position: node.position }])
        }
        _ => Err(node.is_not("a limit must be notation, as in `20/minute`, or a map", "")),
    }
}

#[derive(Default)]
struct Fields<'a> {
    algorithm: Option<Algorithm>,
    count: Option<(&'a Key, u64)>,
    unit: Option<(&'a Node, &'a str)>,
    period: Option<(&'a Key, Period)>,
    ttl: Option<(&'a Key, Period)>,
    burst: Option<(&'a Node, u64)>,
    initial: Option<(&'a Node, u64)>,
    precision: Option<(&'a Node, u64)>,
    from: Option<(&'a Node, Anchor)>,
    zone: Option<(&'a Node, &'a str)>,
}

fn limit(entries: &[(Key, Node)], position: Position) -> Result<Limit, FileError> {
    let mut fields = Fields::default();
    for (key, node) in entries {
        match key.name.as_str() {
            "algorithm" => {
                let names = Algorithm::ALL.map(Algorithm::name);
                fields.algorithm = Some(choice(key, node, Algorithm::from_name, &names)?);
            }
            // `limit` is the name of older files.
            "count" | "limit" => {
                let count = whole_number(key, node, MAX_COUNT)?;
                if fields.count.replace((key, count)).is_some() {
                    return Err(FileError::new(key.position, "`count` and `limit` mean the same: remove one"));
                }
            }
            "unit" => match &node.value {
                Value::Text(text) => fields.unit = Some((node, &text.text)),
                _ => {
                    return Err(FileError::new(
                        node.position,
                        format!("`unit` must be a name, as in `unit: tokens`, not {}", node.describe()),
                    ));
                }
            },
            "from" => match &node.value {
                Value::Text(text) => {
                    let anchor = notation::scan_anchor(&text.text);
                    fields.from = Some((node, anchor.map_err(|error| notation_error(&error, text, node.position))?));
                }
                _ => {
                    let what = format!("`from` must be a text, as in `from: day 15 at 06:00`, not {}", node.describe());
                    return Err(FileError::new(node.position, what));
                }
            },
            "in" => match &node.value {
                Value::Text(text) => fields.zone = Some((node, &text.text)),
                _ => {
                    let what = format!("`in` must be a time zone, as in `in: Europe/Berlin`, not {}", node.describe());
                    return Err(FileError::new(node.position, what));
                }
            },
            "period" => fields.period = Some((key, duration(key, node)?)),
            "ttl" => fields.ttl = Some((key, duration(key, node)?)),
            "burst" => fields.burst = Some((node, whole_number(key, node, MAX_COUNT)?)),
            "initial" => fields.initial = Some((node, whole_number(key, node, MAX_COUNT)?)),
            "precision" => fields.precision = Some((node, whole_number(key, node, u64::from(MAX_PRECISION))?)),
            _ => return Err(unknown_name(key, &LIMIT_NAMES, "a limit has", "")),
        }
    }
    build(&fields, position)
}

fn build(fields: &Fields<'_>, position: Position) -> Result<Limit, FileError> {
    let algorithm = fields.algorithm.unwrap_or(Algorithm::SlidingWindow);
    let (_, count) =
        fields.count.ok_or_else(|| FileError::new(position, "the limit has no `count`: add one, as in `count: 20`"))?;
    let period = match (algorithm, fields.period, fields.ttl) {
        (Algorithm::Concurrency, Some((key, _)), _) => {
            return Err(FileError::new(
                key.position,
                "a concurrency limit has no period: write `ttl` for the time that a hold lasts",
            ));
        }
        (Algorithm::Concurrency, None, Some((_, ttl))) => ttl,
        (Algorithm::Concurrency, None, None) => DEFAULT_TTL,
        (_, _, Some((key, _))) => {
            return Err(FileError::new(key.position, format!("{algorithm} has no ttl: only concurrency has one")));
        }
        (_, Some((_, period)), None) => period,
        (_, None, None) => {
            return Err(FileError::new(position, "the limit has no `period`: add one, as in `period: 1 minute`"));
        }
    };
    let mut limit = Limit::new(algorithm, count, period).map_err(|error| error_at(position, &error))?;
    if let Some((node, unit)) = fields.unit {
        limit = limit.with_unit(unit).map_err(|error| error_at(node.position, &error))?;
    }
    if let Some((node, burst)) = fields.burst {
        limit = limit.with_burst(burst).map_err(|error| error_at(node.position, &error))?;
    }
    if let Some((node, anchor)) = fields.from {
        limit = limit.with_anchor(anchor).map_err(|error| error_at(node.position, &error))?;
    }
    if let Some((node, zone)) = fields.zone {
        limit = limit.with_zone(zone).map_err(|error| error_at(node.position, &error))?;
    }
    if let Some((node, initial)) = fields.initial {
        limit = limit.with_initial(initial).map_err(|error| error_at(node.position, &error))?;
    }
    if let Some((node, precision)) = fields.precision {
        let precision = u32::try_from(precision).unwrap_or(u32::MAX);
        limit = limit.with_precision(precision).map_err(|error| error_at(node.position, &error))?;
    }
    Ok(limit)
}

fn error_at(position: Position, error: &Error) -> FileError {
    FileError::new(position, error.message())
}
