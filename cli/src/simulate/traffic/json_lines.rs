//! Lines of JSON: a time, a key and a cost, each a field by name.

use serde_json::{Map, Value};

use super::{field, moment};

/// The fields that are looked for when none is named.
pub(super) const TIME_FIELDS: [&str; 6] = ["time", "timestamp", "ts", "@timestamp", "at", "date"];
pub(super) const KEY_FIELDS: [&str; 8] =
    ["key", "user", "user_id", "client", "client_ip", "remote_addr", "remote_ip", "ip"];
const COST_FIELD: &str = "cost";

/// Which fields of a line are read.
#[derive(Debug, Clone)]
pub(super) struct Fields {
    pub(super) time: String,
    pub(super) key: String,
    pub(super) cost: Option<String>,
}

impl Fields {
    /// The fields of a trace: those that were named, else those of the usual names that its first line has.
    pub(super) fn of(line: &str, time: Option<&str>, key: Option<&str>, cost: Option<&str>) -> Result<Self, String> {
        let value = object(line)?;
        let chosen = |named: Option<&str>, usual: &[&str], option: &str| {
            let found = || usual.iter().find(|name| value.contains_key(**name)).map(|name| (*name).to_owned());
            named.map(str::to_owned).or_else(found).ok_or_else(|| {
                let has: Vec<String> = value.keys().take(20).map(|name| format!("{name:?}")).collect();
                format!(
                    "has none of the fields {}: say which one it is with {option}; it has {}",
                    usual.join(", "),
                    has.join(", ")
                )
            })
        };
        let (time, key) = (chosen(time, &TIME_FIELDS, "--time-field")?, chosen(key, &KEY_FIELDS, "--key-field")?);
        let cost = cost.or_else(|| value.contains_key(COST_FIELD).then_some(COST_FIELD));
        Ok(Self { time, key, cost: cost.map(str::to_owned) })
    }

    /// The time, the key and the cost of a line.
    pub(super) fn parse(&self, line: &str) -> Result<(u64, String, u64), String> {
        let value = object(line)?;
        let find_field = |name: &str| find(&value, name).ok_or_else(|| format!("has no field {name:?}"));
        let time = text(find_field(&self.time)?);
        let at = time.as_deref().and_then(moment::parse);
        let at = at.ok_or_else(|| format!("the field {:?} is no time: expected {}", self.time, moment::EXPECTED))?;
        let key = text(find_field(&self.key)?)
            .ok_or_else(|| format!("the field {:?} is no key: expected text, a number or a truth value", self.key))?;
        let cost = match &self.cost {
            None => 1,
            Some(name) => field::cost(&text(find_field(name)?).unwrap_or_default())?,
        };
        Ok((at, key, cost))
    }
}

fn object(line: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(line) {
        Ok(Value::Object(value)) => Ok(value),
        Ok(_) => Err("is JSON, but no object: expected {\"time\": …, \"key\": …}".to_owned()),
        Err(error) => Err(format!("is no JSON: {error}; expected {{\"time\": …, \"key\": …}}")),
    }
}

/// A field by its name; where there is none, dots lead into objects.
fn find<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if let Some(value) = object.get(name) {
        return Some(value);
    }
    name.match_indices('.').find_map(|(dot, _)| match object.get(&name[..dot])? {
        Value::Object(inner) => find(inner, &name[dot + 1..]),
        _ => None,
    })
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::Fields;

    #[test]
    fn fields_are_found_at_any_depth() {
        let line = r#"{"time": 12.5, "http": {"client.ip": "10.0.0.7", "cost": "3"}}"#;
        let fields = Fields::of(line, None, Some("http.client.ip"), Some("http.cost")).expect("fields");
        assert_eq!(fields.parse(line), Ok((12_500_000, "10.0.0.7".to_owned(), 3)));
        assert!(fields.parse(r#"{"time": 12.5, "http": {}}"#).is_err_and(|error| error.contains("http.client.ip")));
        assert!(fields.parse("[]").is_err() && fields.parse("{").is_err());
    }

    #[test]
    fn the_first_line_names_the_usual_fields() {
        let fields = Fields::of(r#"{"ts": 1, "ip": "a"}"#, None, None, None).expect("fields");
        assert_eq!((fields.time.as_str(), fields.key.as_str(), fields.cost), ("ts", "ip", None));
        let fields = Fields::of(r#"{"at": 1, "key": "a", "cost": 3}"#, None, None, None).expect("fields");
        assert_eq!(fields.parse(r#"{"at": 1, "key": "a", "cost": 3}"#), Ok((1_000_000, "a".to_owned(), 3)));
        let error = Fields::of(r#"{"ts": 1, "who": "a"}"#, None, None, None).expect_err("no key");
        assert!(error.contains("--key-field") && error.contains("\"who\""), "{error}");
    }
}
