//! How a line of a trace becomes a call: its time, its key and its cost, in each of the formats.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use clap::ValueEnum;
use serde_json::{Map, Value};
use tidegate::Unit;

use super::asked::{Asked, AskedPlaces, CLASS_FIELD};
use super::moment;

/// The fields to look for if the options name none.
const TIME_FIELDS: [&str; 6] = ["time", "timestamp", "ts", "@timestamp", "at", "date"];
const KEY_FIELDS: [&str; 8] = ["key", "user", "user_id", "client", "client_ip", "remote_addr", "remote_ip", "ip"];
const COST_FIELD: &str = "cost";
/// The fields of an access log that may be the key.
const LOG_FIELDS: [&str; 7] = ["address", "user", "method", "path", "status", "referer", "agent"];
/// The largest cost that a check may have.
const MAX_COST: u64 = (1 << 53) - 1;

/// How the lines of a trace are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    /// A time on each line, and, after commas, a key and a cost
    Timestamps,
    /// The common or combined format of web servers
    AccessLog,
    /// An object of JSON on each line
    JsonLines,
}

/// How a trace is read.
#[derive(Debug)]
pub struct TraceOptions {
    /// How its lines are written. Without it the first line decides.
    pub format: Option<TraceFormat>,
    /// The field or the column with the time, if it has an unusual name.
    pub time_field: Option<String>,
    /// The same for the key.
    pub key_field: Option<String>,
    /// The same for the cost.
    pub cost_field: Option<String>,
    /// The same for the class.
    pub priority_field: Option<String>,
    /// The units of the policies. Fields and columns of these names have the number that a call takes.
    pub units: BTreeSet<Unit>,
    /// Sorts the calls by time, in memory.
    pub sort: bool,
    /// Counts lines that are no calls, where else the first one ends the simulation.
    pub skip_bad_lines: bool,
}

/// The time, the key and the cost of a line.
type Call<'a> = (u64, Cow<'a, str>, u64);

/// The parser of all lines of a trace, which depends on the first line.
pub(crate) enum LineParser {
    Timestamps(Columns, AskedPlaces<usize>),
    AccessLog { key: String },
    JsonLines(Fields, AskedPlaces<String>),
}

impl LineParser {
    /// Chooses the parser by the first line, which is at this place. Also returns true if it is only a header.
    pub(crate) fn of(line: &str, options: &TraceOptions, place: &str) -> Result<(Self, bool), String> {
        let detected = if line.starts_with('{') {
            TraceFormat::JsonLines
        } else if line.contains('[') && line.contains('"') {
            TraceFormat::AccessLog
        } else {
            TraceFormat::Timestamps
        };
        let named = [&options.time_field, &options.key_field, &options.cost_field].map(|name| name.as_deref());
        match (options.format.unwrap_or(detected), named) {
            (TraceFormat::JsonLines, _) => match Fields::of(line, named) {
                Ok(fields) => Ok((Self::JsonLines(fields, asked_fields(options)), false)),
                Err(error) => Err(format!("{place}: {} {error}", shown(line))),
            },
            (TraceFormat::Timestamps, _) => match Columns::of(line, named) {
                Ok((columns, is_header)) => {
                    let asked = if is_header { asked_columns(line, options) } else { Ok(AskedPlaces::NONE) };
                    Ok((Self::Timestamps(columns, asked.map_err(|error| format!("{place}: {error}"))?), is_header))
                }
                Err(error) => Err(format!("{place}: {error}")),
            },
            (TraceFormat::AccessLog, [None, key, None]) => {
                let key = key.unwrap_or(LOG_FIELDS[0]).to_owned();
                if LOG_FIELDS.contains(&&*key) {
                    return Ok((Self::AccessLog { key }, false));
                }
                Err(format!("--key-field {key}: an access log has the fields {}", LOG_FIELDS.join(", ")))
            }
            (TraceFormat::AccessLog, _) => Err(format!(
                "--time-field and --cost-field name fields of JSON lines or columns, and {place} is a line of an access log: leave \
                 them out"
            )),
        }
    }

    pub(crate) fn parse<'a>(&self, line: &'a str) -> Result<Call<'a>, String> {
        match self {
            Self::Timestamps(columns, _) => columns.parse(line),
            Self::AccessLog { key } => match of_access_log(line, key) {
                Some((at, key)) => Ok((at, Cow::Borrowed(key), 1)),
                None => Err(format!(
                    "{}: expected a line of an access log: 203.0.113.9 - alice [10/Oct/2000:13:55:36 -0700] \"GET /a HTTP/1.1\" \
                     200 2326",
                    shown(line)
                )),
            },
            Self::JsonLines(fields, _) => fields.parse(line).map_err(|error| format!("{} {error}", shown(line))),
        }
    }

    /// The named units and the class of the call of a line.
    pub(crate) fn asked(&self, line: &str) -> Result<Option<Arc<Asked>>, String> {
        match self {
            Self::Timestamps(_, places) if !places.is_empty() => {
                let fields = split(line);
                places.read(|column| Ok(fields.get(*column).cloned()))
            }
            Self::JsonLines(_, places) if !places.is_empty() => {
                let value = object(line)?;
                places.read(|name| Ok(find(&value, name).and_then(text).map(Cow::Owned)))
            }
            Self::Timestamps(..) | Self::AccessLog { .. } | Self::JsonLines(..) => Ok(None),
        }
    }

    /// The names of the units that its lines do not have.
    pub(crate) fn unsaid<'a>(&self, units: &'a BTreeSet<Unit>) -> Vec<&'a str> {
        let said = |unit: &Unit| match self {
            Self::Timestamps(_, places) => places.units.iter().any(|(known, _)| known == unit),
            Self::AccessLog { .. } => false,
            // Each line may have it.
            Self::JsonLines(..) => true,
        };
        units.iter().filter(|unit| !said(unit)).map(Unit::name).collect()
    }

    /// The format, and the column or field of the key.
    pub(crate) fn description(&self) -> (TraceFormat, Option<String>) {
        match self {
            Self::Timestamps(columns, _) => {
                (TraceFormat::Timestamps, columns.key.map(|column| format!("column {}", column + 1)))
            }
            Self::AccessLog { key } => (TraceFormat::AccessLog, Some(key.clone())),
            Self::JsonLines(fields, _) => (TraceFormat::JsonLines, Some(fields.key.clone())),
        }
    }
}

/// The columns of the policies' units and of the class, from a line that names the columns.
fn asked_columns(line: &str, options: &TraceOptions) -> Result<AskedPlaces<usize>, String> {
    let names: Vec<String> = split(line).iter().map(|field| field.trim().to_ascii_lowercase()).collect();
    let place = |wanted: &str| names.iter().position(|name| *name == wanted.to_ascii_lowercase());
    let units = options.units.iter().filter_map(|unit| Some((unit.clone(), place(unit.name())?))).collect();
    let class = match &options.priority_field {
        None => place(CLASS_FIELD),
        Some(wanted) => Some(
            place(wanted)
                .ok_or_else(|| format!("has no column {wanted:?} for --priority-field: it has {}", names.join(", ")))?,
        ),
    };
    Ok(AskedPlaces { units, class })
}

fn asked_fields(options: &TraceOptions) -> AskedPlaces<String> {
    let class = options.priority_field.as_deref().unwrap_or(CLASS_FIELD);
    AskedPlaces {
        units: options.units.iter().map(|unit| (unit.clone(), unit.name().to_owned())).collect(),
        class: Some(class.to_owned()),
    }
}

/// Parses the cost of a call.
fn cost(text: &str) -> Result<u64, String> {
    let number = text.trim().parse().ok().filter(|cost| (1..=MAX_COST).contains(cost));
    number.ok_or_else(|| format!("the cost {} is not valid: expected a whole number from 1 to 2^53 - 1", shown(text)))
}

/// The beginning of a text, in quotes.
fn shown(text: &str) -> String {
    let beginning: String = text.chars().take(60).collect();
    if beginning.len() < text.len() { format!("{beginning:?}…") } else { format!("{beginning:?}") }
}

/// The places of the time, the key and the cost among the fields between commas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Columns {
    time: usize,
    pub(crate) key: Option<usize>,
    cost: Option<usize>,
}

impl Columns {
    /// Finds the columns by the first line. Also returns true if it is a header, which the options can refer to.
    fn of(line: &str, named: [Option<&str>; 3]) -> Result<(Self, bool), String> {
        let fields = split(line);
        let names: Vec<String> = fields.iter().map(|field| field.trim().to_ascii_lowercase()).collect();
        let usual_time = names.iter().position(|name| TIME_FIELDS.contains(&&**name));
        let is_header = moment::parse(fields[0].trim()).is_none() && (named[0].is_some() || usual_time.is_some());
        if !is_header {
            if named.iter().any(Option::is_some) {
                return Err(format!(
                    "{} names no columns, so no option can name one of them: leave it out, or begin the file with a line such as \
                     time,key,cost; without one the key is the second column, and the cost the third",
                    shown(line)
                ));
            }
            let place = |column: usize| (names.len() > column).then_some(column);
            return Ok((Self { time: 0, key: place(1), cost: place(2) }, false));
        }
        let place = |wanted: &str| names.iter().position(|name| name == wanted);
        let chosen = |wanted: Option<&str>, option: &str, usual: Option<usize>| match wanted {
            None => Ok(usual),
            Some(wanted) => match place(&wanted.to_ascii_lowercase()) {
                None => Err(format!("has no column {wanted:?} for {option}: it has {}", names.join(", "))),
                found => Ok(found),
            },
        };
        let time = chosen(named[0], "--time-field", usual_time)?.unwrap_or_default();
        let cost = chosen(named[2], "--cost-field", place(COST_FIELD))?;
        let key = chosen(named[1], "--key-field", KEY_FIELDS.iter().find_map(|wanted| place(wanted)))?;
        // All callers would count as one.
        if key.is_none() && names.len() > 1 + usize::from(cost.is_some()) {
            return Err(format!(
                "has none of the columns {} for the key: name one with --key-field. It has {}",
                KEY_FIELDS.join(", "),
                names.join(", ")
            ));
        }
        Ok((Self { time, key, cost }, true))
    }

    fn parse(self, line: &str) -> Result<Call<'_>, String> {
        let fields = split(line);
        let field = |column: usize| {
            let missing = || format!("{} has no column {}, which the first line has", shown(line), column + 1);
            fields.get(column).cloned().ok_or_else(missing)
        };
        let time = field(self.time)?;
        let at = moment::parse(&time)
            .ok_or_else(|| format!("{} is not a time: expected {}", shown(&time), moment::EXPECTED))?;
        let key = self.key.map_or(Ok(Cow::Borrowed("all")), field)?;
        let cost = self.cost.map_or(Ok(1), |column| cost(&field(column)?))?;
        Ok((at, key, cost))
    }
}

/// The fields between commas. A field in quotes may have commas, and two quotes stand for one in it.
fn split(line: &str) -> Vec<Cow<'_, str>> {
    if !line.contains('"') {
        return line.split(',').map(|field| Cow::Borrowed(field.trim())).collect();
    }
    let mut fields = Vec::new();
    let mut field = String::new();
    let mut quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(letter) = characters.next() {
        match letter {
            '"' if quoted && characters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(Cow::Owned(std::mem::take(&mut field))),
            letter => field.push(letter),
        }
    }
    fields.push(Cow::Owned(field));
    fields
}

/// The names of the fields that are read from an object of JSON.
#[derive(Debug, Clone)]
pub(crate) struct Fields {
    time: String,
    key: String,
    cost: Option<String>,
}

impl Fields {
    /// The fields that the options name, else the usual ones that the first line has.
    fn of(line: &str, [time, key, cost]: [Option<&str>; 3]) -> Result<Self, String> {
        let value = object(line)?;
        let chosen = |named: Option<&str>, usual: &[&str], option: &str| {
            let found = || usual.iter().copied().find(|name| value.contains_key(*name));
            named.or_else(found).map(str::to_owned).ok_or_else(|| {
                let has: Vec<String> = value.keys().take(20).map(|name| format!("{name:?}")).collect();
                let (usual, has) = (usual.join(", "), has.join(", "));
                format!("has none of the fields {usual}: say which one it is with {option}; it has {has}")
            })
        };
        Ok(Self {
            time: chosen(time, &TIME_FIELDS, "--time-field")?,
            key: chosen(key, &KEY_FIELDS, "--key-field")?,
            cost: cost.or_else(|| value.contains_key(COST_FIELD).then_some(COST_FIELD)).map(str::to_owned),
        })
    }

    fn parse(&self, line: &str) -> Result<Call<'static>, String> {
        let value = object(line)?;
        let field = |name: &str| find(&value, name).map(text).ok_or_else(|| format!("has no field {name:?}"));
        let time = field(&self.time)?;
        let at = time.as_deref().and_then(moment::parse);
        let at = at.ok_or_else(|| format!("the field {:?} is not a time: expected {}", self.time, moment::EXPECTED))?;
        let key = field(&self.key)?.ok_or_else(|| {
            format!("the field {:?} is not a key: expected text, a number or a truth value", self.key)
        })?;
        let cost = self.cost.as_ref().map_or(Ok(1), |name| cost(&field(name)?.unwrap_or_default()))?;
        Ok((at, Cow::Owned(key), cost))
    }
}

fn object(line: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(line) {
        Ok(Value::Object(value)) => Ok(value),
        Ok(_) => Err("is JSON, but no object: expected {\"time\": …, \"key\": …}".to_owned()),
        Err(error) => Err(format!("is not JSON: {error}; expected {{\"time\": …, \"key\": …}}")),
    }
}

/// Finds a field by its name. If there is none, dots lead into objects, as in `http.client.ip`.
fn find<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let inner = |(dot, _): (usize, &str)| find(object.get(&name[..dot])?.as_object()?, &name[dot + 1..]);
    object.get(name).or_else(|| name.match_indices('.').find_map(inner))
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The time of a line of an access log, in the common or the combined format, and the field that is its key.
fn of_access_log<'a>(line: &'a str, field: &str) -> Option<(u64, &'a str)> {
    let (head, rest) = line.split_once('[')?;
    let (time, rest) = rest.split_once(']')?;
    let at = moment::of_access_log(time)?;
    let mut names = head.split_whitespace();
    let (address, _identity, user) = (names.next()?, names.next()?, head.splitn(3, ' ').nth(2)?.trim());
    // The request is read only if it is needed, because it may be broken.
    let request = || quoted(rest);
    let referer = || Some(request()?.1.split_once('"')?.1);
    let key = match field {
        "address" => address,
        "user" => user,
        "method" => request()?.0.split(' ').next()?,
        "path" => request()?.0.split(' ').nth(1)?.split(['?', '#']).next()?,
        "status" => request()?.1.split_whitespace().next()?,
        "referer" => end_of_quote(referer()?)?.0,
        _ => quoted(end_of_quote(referer()?)?.1)?.0,
    };
    Some((at, key))
}

/// The first quoted text, and the rest after it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    end_of_quote(text.trim_start().strip_prefix('"')?)
}

/// Splits at the quote that ends a text. A quote after a backslash does not end it.
fn end_of_quote(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    let end = text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    Some((&text[..end], &text[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "203.0.113.9 - frank [10/Oct/2000:13:55:36 -0700] \"GET /a?b=\\\"c HTTP/1.0\" 200 2326 \
                        \"https://example.org/\" \"Mozilla/4.08 [en]\"";

    #[test]
    fn every_field_can_be_the_key() {
        let at = 971_211_336_000_000;
        let wanted = [
            ("address", "203.0.113.9"),
            ("user", "frank"),
            ("method", "GET"),
            ("path", "/a"),
            ("status", "200"),
            ("referer", "https://example.org/"),
            ("agent", "Mozilla/4.08 [en]"),
        ];
        for (field, key) in wanted {
            assert_eq!(of_access_log(LINE, field), Some((at, key)), "{field}");
        }
    }

    #[test]
    fn other_lines_are_none() {
        for line in
            ["", "203.0.113.9", "a b c [10/Oct/2000] \"GET\" 200 1", "a b c [31/Feb/2000:13:55:36 +0000] \"\" 1 1"]
        {
            assert_eq!(of_access_log(line, "address"), None, "{line}");
        }
        let common = "::1 - - [10/Oct/2000:13:55:36 +0000] \"GET / HTTP/1.0\" 200 1";
        assert!(of_access_log(common, "address").is_some());
        assert_eq!(of_access_log(common, "agent"), None);
    }

    #[test]
    fn fields_are_found_at_any_depth() {
        let line = r#"{"time": 12.5, "http": {"client.ip": "10.0.0.7", "cost": "3"}}"#;
        let fields = Fields::of(line, [None, Some("http.client.ip"), Some("http.cost")]).expect("fields");
        assert_eq!(fields.parse(line), Ok((12_500_000, "10.0.0.7".into(), 3)));
        assert!(fields.parse(r#"{"time": 12.5, "http": {}}"#).is_err_and(|error| error.contains("http.client.ip")));
        assert!(fields.parse("[]").is_err() && fields.parse("{").is_err());
    }

    #[test]
    fn the_first_line_names_the_usual_fields() {
        let fields = Fields::of(r#"{"ts": 1, "ip": "a"}"#, [None; 3]).expect("fields");
        assert_eq!((fields.time.as_str(), fields.key.as_str(), fields.cost), ("ts", "ip", None));
        let fields = Fields::of(r#"{"at": 1, "key": "a", "cost": 3}"#, [None; 3]).expect("fields");
        assert_eq!(fields.parse(r#"{"at": 1, "key": "a", "cost": 3}"#), Ok((1_000_000, "a".into(), 3)));
        let error = Fields::of(r#"{"ts": 1, "who": "a"}"#, [None; 3]).expect_err("no key");
        assert!(error.contains("--key-field") && error.contains("\"who\""), "{error}");
    }

    #[test]
    fn columns_are_those_of_the_first_line() {
        let of = |line: &str| Columns::of(line, [None; 3]).expect("columns");
        let (columns, is_header) = of("12.5,\"a, \"\"b\"\"\",3");
        assert!(!is_header);
        assert_eq!(columns.parse("12.5,\"a, \"\"b\"\"\",3"), Ok((12_500_000, "a, \"b\"".into(), 3)));
        assert!(columns.parse("12.5,a").is_err_and(|error| error.contains("column 3")));
        assert!(columns.parse("12.5,a,0").is_err_and(|error| error.contains("cost")));
        let (columns, is_header) = of("time,cost,key");
        assert!(is_header);
        assert_eq!(columns.parse("1,2,x"), Ok((1_000_000, "x".into(), 2)));
        for header in ["time,user", "time,client_ip", "Time,Cost,User"] {
            let (columns, is_header) = of(header);
            assert!(is_header && columns.key.is_some(), "{header}: {columns:?}");
        }
        let (columns, _) = Columns::of("who,when,path", [Some("when"), Some("path"), None]).expect("columns");
        assert_eq!(columns.parse("x,1,/a"), Ok((1_000_000, "/a".into(), 1)));
        assert!(Columns::of("time,tenant", [None; 3]).is_err_and(|error| error.contains("--key-field")));
        assert!(Columns::of("time,user", [None, Some("tenant"), None]).is_err_and(|error| error.contains("tenant")));
        assert!(
            Columns::of("1,alice", [None, Some("user"), None]).is_err_and(|error| error.contains("names no columns"))
        );
        assert_eq!(of("time,cost").0.key, None);
        assert_eq!(of("1").0.parse("1"), Ok((1_000_000, "all".into(), 1)));
    }
}
