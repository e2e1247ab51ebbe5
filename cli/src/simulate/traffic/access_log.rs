//! Lines of access logs in the common and the combined format.

use super::moment;

/// What `--key-field` may name.
pub(super) const FIELDS: [&str; 7] = ["address", "user", "method", "path", "status", "referer", "agent"];

pub(super) const EXPECTED: &str =
    "a line of an access log: 203.0.113.9 - alice [10/Oct/2000:13:55:36 -0700] \"GET /a HTTP/1.1\" 200 2326";

/// The time of a line and the field that is its key.
pub(super) fn parse<'a>(line: &'a str, field: &str) -> Option<(u64, &'a str)> {
    let (head, rest) = line.split_once('[')?;
    let (time, rest) = rest.split_once(']')?;
    let at = moment::of_access_log(time)?;
    let mut names = head.split_whitespace();
    let (address, _identity, user) = (names.next()?, names.next()?, head.splitn(3, ' ').nth(2)?.trim());
    if field == "address" {
        return Some((at, address));
    }
    if field == "user" {
        return Some((at, user));
    }
    let (request, rest) = quoted(rest)?;
    let key = match field {
        "method" => request.split(' ').next()?,
        "path" => {
            let target = request.split(' ').nth(1)?;
            target.split(['?', '#']).next()?
        }
        "status" => rest.split_whitespace().next()?,
        _ => {
            let (_, rest) = rest.split_once('"')?;
            let (referer, rest) = end_of_quote(rest)?;
            if field == "referer" { referer } else { quoted(rest)?.0 }
        }
    };
    Some((at, key))
}

/// The first quoted text, and what follows it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    end_of_quote(text.trim_start().strip_prefix('"')?)
}

/// Up to the quote that ends a text; one after a backslash does not.
fn end_of_quote(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !escaped => return Some((&text[..index], &text[index + 1..])),
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::parse;

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
            assert_eq!(parse(LINE, field), Some((at, key)), "{field}");
        }
    }

    #[test]
    fn other_lines_are_none() {
        for line in
            ["", "203.0.113.9", "a b c [10/Oct/2000] \"GET\" 200 1", "a b c [31/Feb/2000:13:55:36 +0000] \"\" 1 1"]
        {
            assert_eq!(parse(line, "address"), None, "{line}");
        }
        let common = "::1 - - [10/Oct/2000:13:55:36 +0000] \"GET / HTTP/1.0\" 200 1";
        assert!(parse(common, "address").is_some());
        assert_eq!(parse(common, "agent"), None);
    }
}
