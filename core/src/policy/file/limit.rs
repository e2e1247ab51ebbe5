//! One limit of a policy file, and the kinds of value that options have.

use super::super::limit::{Algorithm, Limit, MAX_COUNT, MAX_PRECISION};
use super::super::nearest::did_you_mean;
use super::super::notation::{self, DEFAULT_TTL, clip};
use super::super::period::{Period, SECOND};
use super::schema::unknown;
use super::tree::{Fault, Key, Node, Spot, Text, Value};
use super::yaml::plain;
use crate::error::Error;

/// What a limit that is a map may hold.
pub(super) const KEYS: [&str; 8] = ["algorithm", "count", "period", "burst", "initial", "precision", "ttl", "limit"];

/// A limit and where it stands.
pub(super) struct Placed {
    pub(super) limit: Limit,
    pub(super) spot: Spot,
}

/// The limits of a notation, or the one of a map.
pub(super) fn limits(node: &Node) -> Result<Vec<Placed>, Fault> {
    match &node.value {
        Value::Text(text) => {
            let limits = notation::scan(&text.text).map_err(|fault| in_text(&fault, text, node.spot))?;
            Ok(limits.into_iter().map(|limit| Placed { limit, spot: node.spot }).collect())
        }
        Value::Map(entries) => Ok(vec![Placed { limit: limit(entries, node.spot)?, spot: node.spot }]),
        _ => Err(Fault::new(
            node.spot,
            format!("a limit must be notation, as in `20/minute`, or a map, not {}", node.describe()),
        )),
    }
}

/// A fault of the notation, at its column in the file when that is known.
fn in_text(fault: &notation::Fault, text: &Text, spot: Spot) -> Fault {
    let spot = text.body.map_or(spot, |body| Spot { column: body.column + fault.offset(&text.text), ..body });
    Fault::new(spot, fault.message(&text.text))
}

#[derive(Default)]
struct Fields<'a> {
    algorithm: Option<Algorithm>,
    count: Option<(&'a Key, u64)>,
    period: Option<(&'a Key, Period)>,
    ttl: Option<(&'a Key, Period)>,
    burst: Option<(&'a Node, u64)>,
    initial: Option<(&'a Node, u64)>,
    precision: Option<(&'a Node, u64)>,
}

fn limit(entries: &[(Key, Node)], spot: Spot) -> Result<Limit, Fault> {
    let mut fields = Fields::default();
    for (key, node) in entries {
        match key.name.as_str() {
            "algorithm" => {
                let names = Algorithm::ALL.map(Algorithm::name);
                fields.algorithm = Some(choice(key, node, Algorithm::from_name, &names)?);
            }
            // `limit` is the name of older files.
            "count" | "limit" => {
                let count = whole(key, node, MAX_COUNT)?;
                if fields.count.replace((key, count)).is_some() {
                    return Err(Fault::new(key.spot, "`count` and `limit` mean the same: remove one"));
                }
            }
            "period" => fields.period = Some((key, duration(key, node)?)),
            "ttl" => fields.ttl = Some((key, duration(key, node)?)),
            "burst" => fields.burst = Some((node, whole(key, node, MAX_COUNT)?)),
            "initial" => fields.initial = Some((node, whole(key, node, MAX_COUNT)?)),
            "precision" => fields.precision = Some((node, whole(key, node, u64::from(MAX_PRECISION))?)),
            _ => return Err(unknown(key, &KEYS, "a limit has", "")),
        }
    }
    build(&fields, spot)
}

fn build(fields: &Fields<'_>, spot: Spot) -> Result<Limit, Fault> {
    let algorithm = fields.algorithm.unwrap_or(Algorithm::SlidingWindow);
    let (_, count) = fields.count.ok_or_else(|| Fault::new(spot, "the limit has no `count`"))?;
    let period = match (algorithm, fields.period, fields.ttl) {
        (Algorithm::Concurrency, Some((key, _)), _) => {
            return Err(Fault::new(key.spot, "concurrency has no period: write `ttl` for how long a hold lasts"));
        }
        (Algorithm::Concurrency, None, Some((_, ttl))) => ttl,
        (Algorithm::Concurrency, None, None) => {
            Period::from_micros(DEFAULT_TTL * SECOND).map_err(|error| at(spot, &error))?
        }
        (_, _, Some((key, _))) => {
            return Err(Fault::new(key.spot, format!("{algorithm} has no ttl: only concurrency has one")));
        }
        (_, Some((_, period)), None) => period,
        (_, None, None) => return Err(Fault::new(spot, "the limit has no `period`")),
    };
    let mut limit = Limit::new(algorithm, count, period).map_err(|error| at(spot, &error))?;
    if let Some((node, burst)) = fields.burst {
        limit = limit.with_burst(burst).map_err(|error| at(node.spot, &error))?;
    }
    if let Some((node, initial)) = fields.initial {
        limit = limit.with_initial(initial).map_err(|error| at(node.spot, &error))?;
    }
    if let Some((node, precision)) = fields.precision {
        let precision = u32::try_from(precision).unwrap_or(u32::MAX);
        limit = limit.with_precision(precision).map_err(|error| at(node.spot, &error))?;
    }
    Ok(limit)
}

fn at(spot: Spot, error: &Error) -> Fault {
    Fault::new(spot, error.message())
}

/// One of some words.
pub(super) fn choice<T>(
    key: &Key,
    node: &Node,
    from_name: impl Fn(&str) -> Option<T>,
    names: &[&str],
) -> Result<T, Fault> {
    let Value::Text(text) = &node.value else { return Err(wrong(key, node, &format!("one of {}", names.join(", ")))) };
    from_name(&text.text).ok_or_else(|| {
        let near =
            if text.text.contains("://") { String::new() } else { did_you_mean(&text.text, names.iter().copied()) };
        Fault::new(
            node.spot,
            format!("`{}` must be one of {}, not {}{near}", clip(&key.name), names.join(", "), node.describe()),
        )
    })
}

/// `true` or `false`.
pub(super) fn flag(key: &Key, node: &Node) -> Result<bool, Fault> {
    match scalar(node) {
        Value::Bool(value) => Ok(value),
        _ => Err(wrong(key, node, "true or false")),
    }
}

/// A whole number from 0 to a bound.
pub(super) fn whole(key: &Key, node: &Node, most: u64) -> Result<u64, Fault> {
    let wanted = || wrong(key, node, &format!("a whole number from 0 to {most}"));
    match scalar(node) {
        Value::Integer(number) => u64::try_from(number).ok().filter(|number| *number <= most).ok_or_else(wanted),
        _ => Err(wanted()),
    }
}

/// A number of seconds, or a text such as `10m`.
pub(super) fn duration(key: &Key, node: &Node) -> Result<Period, Fault> {
    let wanted = "a number of seconds from 0.001 to 10 years, or a length of time, as in `10m` or `1 day`";
    let micros = match scalar(node) {
        Value::Integer(seconds) => u64::try_from(seconds).ok().and_then(|seconds| seconds.checked_mul(SECOND)),
        // Too large, negative and NaN saturate to what from_micros refuses.
        Value::Float(seconds) => Some((seconds * SECOND as f64).round() as u64),
        Value::Text(text) => {
            return notation::scan_duration(&text.text).map_err(|fault| in_text(&fault, &text, node.spot));
        }
        _ => None,
    };
    micros.and_then(|micros| Period::from_micros(micros).ok()).ok_or_else(|| wrong(key, node, wanted))
}

/// The environment holds texts only, so a text from there may be a number or a boolean.
fn scalar(node: &Node) -> Value {
    match &node.value {
        Value::Text(text) if text.from_environment => plain(text.text.trim()).unwrap_or_else(|| node.value.clone()),
        Value::List(_) | Value::Map(_) | Value::Null => Value::Null,
        value => value.clone(),
    }
}

fn wrong(key: &Key, node: &Node, wanted: &str) -> Fault {
    Fault::new(node.spot, format!("`{}` must be {wanted}, not {}", clip(&key.name), node.describe()))
}
