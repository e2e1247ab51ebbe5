//! Lines of a trace with a time each and, after commas, a key and a cost.

use std::borrow::Cow;

use super::field::{cost, shown};
use super::moment;

/// The places of the key and of the cost in a line; the time comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) key: Option<usize>,
    cost: Option<usize>,
}

impl Columns {
    /// The columns that the first line has, or names: then it is no call.
    pub(super) fn of(line: &str) -> (Self, bool) {
        let fields = split(line);
        let names: Vec<String> = fields.iter().map(|field| field.trim().to_ascii_lowercase()).collect();
        if names.first().is_some_and(|name| ["time", "timestamp", "ts", "at"].contains(&name.as_str())) {
            let place = |wanted: &str| names.iter().position(|name| name == wanted);
            return (Self { key: place("key"), cost: place("cost") }, true);
        }
        let place = |column: usize| (names.len() > column).then_some(column);
        (Self { key: place(1), cost: place(2) }, false)
    }

    /// The time, the key and the cost of a line.
    pub(super) fn parse(self, line: &str) -> Result<(u64, Cow<'_, str>, u64), String> {
        let fields = split(line);
        let field = |column: usize| {
            let missing = || format!("{} has no column {}, which the first line has", shown(line), column + 1);
            fields.get(column).cloned().ok_or_else(missing)
        };
        let time = field(0)?;
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
        let (columns, is_header) = Columns::of("12.5,\"a, \"\"b\"\"\",3");
        assert!(!is_header);
        assert_eq!(columns.parse("12.5,\"a, \"\"b\"\"\",3"), Ok((12_500_000, "a, \"b\"".into(), 3)));
        assert!(columns.parse("12.5,a").is_err_and(|error| error.contains("column 3")));
        assert!(columns.parse("12.5,a,0").is_err_and(|error| error.contains("cost")));
        let (columns, is_header) = Columns::of("time,cost,key");
        assert!(is_header);
        assert_eq!(columns.parse("1,2,x"), Ok((1_000_000, "x".into(), 2)));
        assert_eq!(Columns::of("1").0.parse("1"), Ok((1_000_000, "all".into(), 1)));
    }
}
