//! Lines of a trace with a time each and, after commas, a key and a cost.

use std::borrow::Cow;

use super::field::{cost, shown};
use super::json_lines::{KEY_FIELDS, TIME_FIELDS};
use super::moment;

/// The places of the time, the key and the cost in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Columns {
    time: usize,
    pub(super) key: Option<usize>,
    cost: Option<usize>,
}

impl Columns {
    /// The columns that the first line has, or names: then it is no call. The options name columns of such a line.
    pub(super) fn of(line: &str, named: [Option<&str>; 3]) -> Result<(Self, bool), String> {
        let fields = split(line);
        let names: Vec<String> = fields.iter().map(|field| field.trim().to_ascii_lowercase()).collect();
        let [time, key, cost] = named;
        let usual_time = || names.iter().position(|name| TIME_FIELDS.contains(&name.as_str()));
        let is_header = moment::parse(fields[0].trim()).is_none() && (time.is_some() || usual_time().is_some());
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
        let place = |wanted: &str, option: &str| {
            let found = names.iter().position(|name| *name == wanted.to_ascii_lowercase());
            found.ok_or_else(|| format!("has no column {wanted:?} for {option}: it has {}", names.join(", ")))
        };
        let usual = |known: &[&str]| known.iter().find_map(|wanted| names.iter().position(|name| name == wanted));
        let time = match time {
            Some(time) => place(time, "--time-field")?,
            None => usual_time().unwrap_or_default(),
        };
        let cost = cost.map_or_else(|| Ok(usual(&["cost"])), |cost| place(cost, "--cost-field").map(Some))?;
        let key = match key {
            Some(key) => Some(place(key, "--key-field")?),
            None => usual(&KEY_FIELDS),
        };
        // All callers would be one.
        if key.is_none() && names.len() > 1 + usize::from(cost.is_some()) {
            return Err(format!(
                "has none of the columns {} for the key: say which one it is with --key-field; it has {}",
                KEY_FIELDS.join(", "),
                names.join(", ")
            ));
        }
        Ok((Self { time, key, cost }, true))
    }

    /// The time, the key and the cost of a line.
    pub(super) fn parse(self, line: &str) -> Result<(u64, Cow<'_, str>, u64), String> {
        let fields = split(line);
        let field = |column: usize| {
            let missing = || format!("{} has no column {}, which the first line has", shown(line), column + 1);
            fields.get(column).cloned().ok_or_else(missing)
        };
        let time = field(self.time)?;
        let at = moment::parse(&time)
            .ok_or_else(|| format!("{} is no time: expected {}", shown(&time), moment::EXPECTED))?;
        let key = self.key.map_or(Ok(Cow::Borrowed("all")), field)?;
        let cost = self.cost.map_or(Ok(1), |column| cost(&field(column)?))?;
        Ok((at, key, cost))
    }
}

/// The fields between commas; one in quotes may have commas, and a doubled quote for a quote.
fn split(line: &str) -> Vec<Cow<'_, str>> {
    if !line.contains('"') {
        return line.split(',').map(|field| Cow::Borrowed(field.trim())).collect();
    }
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.chars().peekable();
    while let Some(letter) = characters.next() {
        match letter {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(Cow::Owned(std::mem::take(&mut field))),
            letter => field.push(letter),
        }
    }
    fields.push(Cow::Owned(field));
    fields
}

#[cfg(test)]
mod tests {
    use super::Columns;

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
