//! Text of `lua/one_limit.lua` and `lua/several_limits.lua`: the rule's own text in place of three marks. A rule stands once in
//! the sources, and a check of it makes no closure, of one limit not even a table.

/// The loops over the keys, with their marks.
const ONE_LIMIT: &str = include_str!("lua/one_limit.lua");
const SEVERAL_LIMITS: &str = include_str!("lua/several_limits.lua");

const SLIDING_WINDOW: &str = include_str!("lua/sliding_window.lua");

/// The rules that `lua/one_limit.lua` takes: the conditions of their algorithms, and their files. The three buckets share one.
const RULES: [(&str, &str); 5] = [
    ("algorithm == SLIDING_WINDOW", SLIDING_WINDOW),
    ("algorithm == GCRA or algorithm == TOKEN_BUCKET or algorithm == LEAKY_BUCKET", include_str!("lua/meter.lua")),
    ("algorithm == SLIDING_COUNTER", include_str!("lua/sliding_counter.lua")),
    ("algorithm == FIXED_WINDOW", include_str!("lua/fixed_window.lua")),
    ("algorithm == CALENDAR_WINDOW", include_str!("lua/calendar_window.lua")),
];

const ADVANCE: &str = "advance_to(value, first, now, limit)";

/// What a rule calls fields and numbers, and what `lua/one_limit.lua` and `lua/head.lua` call them.
const NAMES: [(&str, &str); 9] = [
    ("value[limit.list]", "list_text"),
    ("value[first]", "field_1"),
    ("value[first + 1]", "field_2"),
    ("value[first + 2]", "field_3"),
    ("limit.count", "count"),
    ("limit.period", "period"),
    ("limit.x", "x"),
    ("limit.y", "y"),
    // The loops leave a moment that is still to come to the slow path.
    ("latest", "now"),
];

/// The branch that serves a call of one limit.
pub(super) fn one_limit() -> String {
    let branches = RULES.map(|(condition, rule)| {
        let (admits, mut charge) = (inlined(rule, "admits", "admitted"), inlined(rule, "charge", "ends"));
        let possible = inlined(rule, "possible", "possible");
        let (mut length, mut list, mut append) = ("", "", "");
        if rule == SLIDING_WINDOW {
            length = "+ field_4 or field_4 % 14 > 0";
            list = "list_text = sub(s, #unused + 1)";
            charge.push_str("\nfield_4 = #list_text");
            append = " .. list_text";
        }
        let marks = [
            ("--<length>", length),
            ("--<list>", list),
            ("--<admits>", &*admits),
            ("--<possible>", &possible),
            ("--<charge>", &charge),
            ("--<append>", append),
        ];
        let body = marks.iter().fold(ONE_LIMIT.to_owned(), |body, (mark, text)| body.replace(mark, text));
        format!("if {condition} then\n{}{body}", helpers(rule))
    });
    format!("if grouping == ONE_LIMIT then\n{}end\nend\n", branches.join("else"))
}

/// The branch that serves a call of several limits whose rules have no helpers.
pub(super) fn several_limits() -> String {
    let branches = |function: &str, result: &str| {
        let rules = RULES.iter().filter(|(_, rule)| helpers(rule).is_empty());
        let branches: Vec<_> = rules
            .map(|(condition, rule)| format!("if {condition} then\n{}\n", inlined(rule, function, result)))
            .collect();
        format!("{}end", branches.join("else"))
    };
    let results = [("admits", "admitted"), ("possible", "possible"), ("charge", "ends")];
    let body = results.iter().fold(SEVERAL_LIMITS.to_owned(), |body, (function, result)| {
        body.replace(&format!("--<{function}>"), &branches(function, result))
    });
    format!("if grouping == SEVERAL_LIMITS then\n{body}end\n")
}

/// What stands in the file of a rule before its functions, for these to call.
fn helpers(rule: &str) -> &str {
    let (before, _) = rule.split_once("  local function admits").unwrap_or_default();
    before.split_once("then\n").map_or("", |(_, helpers)| helpers)
}

/// The body of the first function that begins so.
fn body<'a>(rule: &'a str, head: &str) -> &'a str {
    let (before, body) = rule.split_once(&format!("function {head}\n")).unwrap_or_default();
    let (_, start) = before.rsplit_once('\n').unwrap_or_default();
    let indent: String = start.chars().take_while(|character| *character == ' ').collect();
    body.split_once(&format!("\n{indent}end\n")).map_or("", |(body, _)| body)
}

/// The body of a rule's function, with local names, and its result in a variable.
fn inlined(rule: &str, function: &str, result: &str) -> String {
    let arguments = if function == "possible" { "latest" } else { "now, cost" };
    let body = body(rule, &format!("{function}(value, first, {arguments}, limit)"));
    // The one function that a rule calls with its tables.
    let body = body.replace(ADVANCE, &format!("do\n{}\nend", self::body(rule, ADVANCE)));
    let body = NAMES.iter().fold(body.to_owned(), |body, (name, local)| body.replace(name, local));
    let (body, last) = body.rsplit_once("return ").unwrap_or_default();
    format!("do\n{body}{result} = {last}\nend")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_taken_whole_and_without_its_tables() {
        for (_, rule) in RULES {
            for (function, result) in [("admits", "admitted"), ("possible", "possible"), ("charge", "ends")] {
                let text = inlined(rule, function, result);
                assert!(text.contains(&format!("{result} = ")), "{text}");
                for table in ["value", "limit", "return"] {
                    assert!(!text.contains(table), "{table} in {text}");
                }
                let assigned = text
                    .lines()
                    .filter_map(|line| line.trim().split_once(" = "))
                    .flat_map(|(left, _)| left.split(", "));
                for name in assigned {
                    assert!(
                        !["now", "cost", "count", "period", "x", "y"].contains(&name),
                        "{name} is changed in {text}"
                    );
                }
            }
            assert!(!helpers(rule).contains("value"), "{}", helpers(rule));
        }
        assert!(![one_limit(), several_limits()].concat().contains("--<"));
    }
}
