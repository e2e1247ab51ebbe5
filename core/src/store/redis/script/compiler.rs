//! Makes the script from its sources in `lua/`. It puts the text of the rules into the loops for checks, makes
//! functions of the rules for the slow path, and replaces names with numbers.
//!
//! The source of a rule has sections. A line `--[[ name ]]` or `--[[ name: argument ]]` begins a section, and a section
//! replaces a line `--<name>`. The sections of a rule:
//!
//! | section | content |
//! |---|---|
//! | `algorithms:` | the algorithms of the rule |
//! | `fields:`, `numbers:` | the names that the text has for the fields of a limit, its list among them, and for its numbers |
//! | `helpers:` | functions of these names, which see neither fields nor numbers |
//! | `advance` | brings the fields to the time `now` |
//! | `used` | an expression: the units that count then |
//! | `possible` | an expression: true if the rule can have a state with these fields, where no moment is later than `LATEST` |
//! | `charge` | charges `cost` after `advance`, and sets `ends` |
//! | `methods` | methods of `rule` that only the slow path calls. Their `self` is the limit. `lua/rules.lua` lists them |
//! | `more methods` | the methods that checks and charges do without |
//! | `alone`, `charge alone` | the text in a loop for checks of one such limit, if `advance` and `charge` are methods |
//! | `before alone:` | sets locals of these names before that loop |
//! | `when:` | the sections up to the next `when:` hold if the limit's numbers meet this condition |

use std::collections::HashMap;

use super::annex::LINE_NUMBERS;
use super::batch::GROUPINGS;
use super::instruction::OPERATIONS;
use crate::algorithm::{Field, Stored, script_numbers, stored};
use crate::plan::section::SECTIONS;

/// The rules. The more common ones come first, since a check of several limits compares the algorithm of each.
const RULES: [&str; 7] = [
    include_str!("lua/fixed_window.lua"),
    include_str!("lua/sliding_window.lua"),
    include_str!("lua/meter.lua"),
    include_str!("lua/sliding_counter.lua"),
    include_str!("lua/calendar_window.lua"),
    include_str!("lua/concurrency.lua"),
    include_str!("lua/sliding_log.lua"),
];

const CHECK: &str = include_str!("lua/check.lua");

const SLOW_PATH: &str = concat!(
    include_str!("lua/instruction.lua"),
    include_str!("lua/stored_form.lua"),
    include_str!("lua/learned.lua"),
    include_str!("lua/waiting_line.lua"),
    include_str!("lua/operation.lua"),
    include_str!("lua/slow_path.lua"),
    include_str!("lua/main.lua"),
);

/// The files in `golden/`: the script, its digest, and the text that runs for checks of some policies.
#[must_use]
pub fn script_files() -> Vec<(&'static str, String)> {
    let rules = rules_of_loops();
    let rule = |name: &str| rules.iter().find(|form| form.words("algorithms").contains(&name)).map(one_limit);
    let rule = |name: &str| numbered(&rule(name).unwrap_or_default());
    let script = script();
    vec![
        ("script.sha1", redis::Script::new(&script).get_hash().to_owned()),
        ("script.lua", script),
        ("gcra.lua", rule("GCRA")),
        ("sliding_log.lua", rule("SLIDING_LOG")),
        ("sliding_window.lua", rule("SLIDING_WINDOW")),
        ("three_limits.lua", numbered(&several_limits())),
        ("two_sliding_windows.lua", numbered(&limits_of_a_rule("SLIDING_WINDOW", 2))),
    ]
}

/// The text of the script.
fn script() -> String {
    let [head, reply, rules] =
        [include_str!("lua/head.lua"), include_str!("lua/reply.lua"), include_str!("lua/rules.lua")];
    let rules = filled(rules, |_| RULES.iter().map(|rule| functions(&forms(rule))).collect());
    stripped(&numbered(&[head, &checks(), reply, &rules, SLOW_PATH].concat()))
}

/// The text without comments, indentation and empty lines, so that each process sends a third fewer bytes.
fn stripped(text: &str) -> String {
    let code = |line: &str| {
        let parts = line.split_inclusive('\'');
        let mut code = String::new();
        for (at, part) in parts.enumerate() {
            let comment = if at % 2 == 0 { part.find("--") } else { None };
            code += &part[..comment.unwrap_or(part.len())];
            if comment.is_some() {
                break;
            }
        }
        code.trim().to_owned()
    };
    let lines: Vec<_> = text.lines().map(code).filter(|line| !line.is_empty()).collect();
    lines.join("\n") + "\n"
}

/// The text that replaces each word.
type Names = HashMap<String, String, foldhash::fast::RandomState>;

#[derive(Clone, Copy)]
struct Section<'a> {
    argument: &'a str,
    text: &'a str,
}

/// The sections of a source in order, by their names.
fn sections(source: &str) -> impl Iterator<Item = (&str, Section<'_>)> {
    source.split("--[[ ").filter_map(|part| part.split_once(" ]]\n")).map(|(mark, text)| {
        let (name, argument) = mark.split_once(": ").unwrap_or((mark, ""));
        (name, Section { argument, text })
    })
}

/// The form of a rule under a condition on a limit's numbers, or the form under all conditions.
#[derive(Clone, Default)]
struct RuleForm<'a> {
    when: Option<&'a str>,
    sections: HashMap<&'a str, Section<'a>>,
    /// The sections that all forms of the rule share.
    shared: HashMap<&'a str, Section<'a>>,
}

/// The form of a rule under all conditions, then its form under each.
fn forms(source: &str) -> Vec<RuleForm<'_>> {
    let mut forms = vec![RuleForm::default()];
    for (name, section) in sections(source) {
        if name == "when" {
            let shared = forms[0].sections.clone();
            forms.push(RuleForm { when: Some(section.argument), shared, ..RuleForm::default() });
        } else if let Some(form) = forms.last_mut() {
            form.sections.insert(name, section);
        }
    }
    forms
}

impl<'a> RuleForm<'a> {
    fn find(&self, name: &str) -> Option<Section<'a>> {
        self.sections.get(name).or_else(|| self.shared.get(name)).copied()
    }

    fn section(&self, name: &str) -> Section<'a> {
        self.find(name).unwrap_or_else(|| {
            panic!(
                "no section {name} in the rule of {}",
                self.find("algorithms").map_or("no algorithm", |rule| rule.argument)
            )
        })
    }

    fn words(&self, name: &str) -> Vec<&'a str> {
        self.section(name).argument.split(", ").collect()
    }

    /// The functions that the rule calls, if it has any.
    fn helpers(&self) -> Option<Section<'a>> {
        self.sections.get("helpers").copied()
    }

    /// True if only policies of one such limit have a loop. Their answer ends with the summary of a log.
    fn is_alone(&self) -> bool {
        self.sections.contains_key("alone")
    }

    /// The condition in Lua that a limit is of this rule.
    fn algorithms(&self) -> String {
        self.words("algorithms").iter().map(|name| format!("algorithm == {name}")).collect::<Vec<_>>().join(" or ")
    }

    /// The description of the algorithm in Rust.
    fn stored(&self) -> Stored {
        let name = self.words("algorithms")[0];
        stored().into_iter().find(|stored| upper(stored.name) == name).unwrap_or_else(|| panic!("no algorithm {name}"))
    }

    /// The list among its fields, if any.
    fn list(&self) -> Option<&'a str> {
        let at = self.stored().fields.iter().position(|field| *field == Field::Length)?;
        Some(self.words("fields")[at])
    }

    /// The text for the names of fields and numbers. `field` and `number` give it by index. `list` is that of the list.
    fn names(&self, field: fn(usize) -> String, list: &str, number: fn(usize) -> String) -> Names {
        let own_list = self.list();
        let fields = self.words("fields").into_iter().enumerate().map(|(at, name)| {
            let text = if own_list == Some(name) { list.to_owned() } else { field(at) };
            (name.to_owned(), text)
        });
        let numbers = self.words("numbers").into_iter().enumerate().map(|(at, name)| (name.to_owned(), number(at)));
        fields.chain(numbers).collect()
    }

    /// A section of `lua/check.lua` with the text of this rule.
    fn placed(&self, part: &str, names: &Names) -> String {
        let mut fields = self.words("fields");
        let list = self.list();
        let small: Vec<_> = fields.iter().skip(1).map(|name| format!("{name} <= 255")).collect();
        let expression = |name: &str| self.find(name).map_or("", |section| section.text.trim_end()).to_owned();
        let mut words = Names::from_iter([
            ("USED".to_owned(), expression("used")),
            ("POSSIBLE".to_owned(), expression("possible")),
            ("ITEM".to_owned(), self.stored().item.to_string()),
            ("SMALL".to_owned(), small.join(" and ")),
            ("FIELDS".to_owned(), fields.join(", ")),
        ]);
        fields.retain(|name| Some(*name) != list);
        words.insert("NUMBERS".to_owned(), fields.join(", "));
        let kind = match list {
            Some(_) if self.is_alone() => " with a log",
            Some(_) => " with a list",
            None => "",
        };
        let part = format!("{part}{kind}");
        let text = named(check(&part), &words);
        let text = filled(&text, |name| {
            let text = filled(self.section(name).text, |name| self.section(name).text.to_owned());
            format!("do\n{}end\n", indented(&text, "  "))
        });
        named(&text, names)
    }

    /// The condition under which a limit has this form, and the text of the rule among several limits.
    fn one_of_several(&self, part: &str) -> (String, String) {
        let number = |at: usize| format!("numbers[place + {}]", at + 4);
        let mut names = self.names(slot, "value[list_slot]", number);
        names.extend(in_loops());
        let length = "list_slot, length = numbers[place + 2], value[numbers[place + 3]]";
        names.insert("LENGTH".to_owned(), length.to_owned());
        let mut body = self.placed(&format!("{part} one of several"), &names);
        // A number that is read twice or more is a local.
        for (at, name) in self.words("numbers").into_iter().enumerate() {
            if body.matches(&number(at)).count() > 1 {
                body = format!("local {name} = {}\n{}", number(at), body.replace(&number(at), name));
            }
        }
        if let (Some(helpers), "ask") = (self.helpers(), part) {
            let first = helpers.argument.split(", ").next().unwrap_or_default();
            body = format!("if not {first} then\n{}end\n{body}", indented(helpers.text, "  "));
        }
        (named(self.when.unwrap_or_default(), &names), body)
    }
}

/// The place of a field in a decoded value.
fn slot(at: usize) -> String {
    if at == 0 { "value[first]".to_owned() } else { format!("value[first + {at}]") }
}

/// The first line of a method, which reads the slot of the first field.
fn with_first(line: &str) -> String {
    let is_method =
        line.trim_start().starts_with("function rule:") || line.contains("local function") && line.contains("(self");
    if is_method { line.replacen(')', ") local first = self.first", 1) } else { line.to_owned() }
}

/// The rule as methods for the slow path.
fn functions(forms: &[RuleForm<'_>]) -> String {
    let number = |at: usize| format!("self.{}", NUMBERS[at]);
    let mut text = String::new();
    for form in forms {
        let names = form.names(slot, "value[self.list]", number);
        let section = |text: &str| named(&filled(text, |name| form.section(name).text.to_owned()), &names);
        let mut body = form.helpers().map_or("", |helpers| helpers.text).to_owned();
        for (name, begin, end) in METHODS {
            if let Some(own) = form.sections.get(name) {
                body += &[begin, &indented(&section(own.text), "  "), end].concat();
            }
        }
        // A method reads the slot of the first field once.
        let body = body.split_inclusive('\n').map(with_first).collect::<String>();
        let number = |at: usize| NUMBERS[at].to_owned();
        text += &match form.when {
            Some(when) => format!(
                "if {} then\n{}end\n",
                named(when, &form.names(|_| String::new(), "", number)),
                indented(&body, "  ")
            ),
            None => body,
        };
    }
    let helpers = forms.iter().filter_map(RuleForm::helpers).map(|helpers| format!("local {}\n", helpers.argument));
    let text = helpers.collect::<String>() + &text;
    format!("if {} then\n{}end\n", forms[0].algorithms(), indented(&text, "  "))
}

/// The names that the script has for the numbers of a limit, in order.
const NUMBERS: [&str; 5] = ["count", "period", "x", "y", "z"];

/// The sections that become methods, with the text before and behind each.
const METHODS: [(&str, &str, &str); 6] = [
    ("advance", "function rule:advance(value)\n", "end\n"),
    ("used", "function rule:used(value)\n  return\n", "end\n"),
    ("possible", "function rule:possible(value)\n  return\n", "end\n"),
    ("charge", "function rule:charge(value, cost, hold)\n  local ends\n", "  return ends\nend\n"),
    ("methods", "", ""),
    ("more methods", "if all_methods then\n", "end\n"),
];

/// The loops for checks. Each run takes one of them.
fn checks() -> String {
    let one = indented(&(rules_of_loops().iter().map(one_limit).collect::<Vec<_>>().join("else") + "end\n"), "  ");
    let of_a_rule = LIMITS_OF_A_RULE.iter().map(|(algorithm, count)| {
        let text = indented(&limits_of_a_rule(algorithm, *count), "  ");
        // The numbers of a limit begin with its algorithm.
        let others = (1..*count).map(|at| format!(" and byte(policy, after + {}) == {algorithm}", 8 + 44 * (at - 1)));
        format!("elseif limit_count == {count} and algorithm == {algorithm}{} then\n{text}", others.collect::<String>())
    });
    let of_a_rule = of_a_rule.collect::<String>();
    let several = indented(&several_limits(), "  ");
    let loops = format!("if limit_count == 1 then\n{one}{of_a_rule}else\n{several}end\n");
    let runs = filled(check("runs"), |_| loops.clone());
    format!("if grouping == CHECKS then\n{}end\n", indented(&runs, "  "))
}

/// Several limits of one rule that have a special loop. Most policies of several limits use the default algorithm.
const LIMITS_OF_A_RULE: [(&str, usize); 2] = [("SLIDING_WINDOW", 2), ("SLIDING_WINDOW", 3)];

/// The branch for checks of a policy with so many limits of one rule. Fields and numbers are locals, with the number of their limit
/// behind their names.
fn limits_of_a_rule(algorithm: &str, count: usize) -> String {
    let rules = rules_of_checks();
    let form = rules.iter().flatten().find(|form| form.words("algorithms") == [algorithm]);
    let form = form.unwrap_or_else(|| panic!("no rule of {algorithm}"));
    let list = form.list().unwrap_or_else(|| panic!("no list in the rule of {algorithm}"));
    let limits = 1..=count;
    let joined = |text: &dyn Fn(usize) -> String, by: &str| limits.clone().map(text).collect::<Vec<_>>().join(by);
    let fields = |at: usize, of_list: &str| {
        let field = |name: &&str| format!("{}{name}{at}", if *name == list { of_list } else { "" });
        form.words("fields").iter().map(field).collect::<Vec<_>>().join(", ")
    };
    let numbers = |at: usize| {
        let mut names: Vec<_> = form.words("numbers").iter().map(|name| format!("{name}{at}")).collect();
        names.resize(NUMBERS.len(), "_".to_owned());
        format!("_, _, _, _, {}", names.join(", "))
    };
    let words = Names::from_iter([
        ("NUMBERS".to_owned(), joined(&numbers, ", ")),
        ("FIELDS".to_owned(), joined(&|at| fields(at, ""), ", ")),
        ("STORED".to_owned(), joined(&|at| fields(at, "#"), ", ")),
        ("LISTS".to_owned(), joined(&|at| format!("{list}{at}"), " .. ")),
    ]);
    let one = |part: &str, at: usize| {
        let own = [form.words("fields"), form.words("numbers")].concat();
        let mut names: Names = own.iter().map(|name| ((*name).to_owned(), format!("{name}{at}"))).collect();
        names.extend(in_loops());
        names.insert("LENGTH".to_owned(), format!("length = {list}{at}"));
        form.placed(part, &names)
    };
    // A limit is asked if those before it admit.
    let asked = limits.clone().rev().fold(String::new(), |behind, at| {
        let behind = match at == count {
            true => behind,
            false => format!("if possible and admitted then\n{}end\n", indented(&behind, "  ")),
        };
        one("ask one of several", at) + &behind
    });
    let charged: String = limits.clone().map(|at| one("apply one of a rule", at)).collect();
    let body = filled(check("loop"), |mark| match mark {
        "answer" => String::new(),
        mark => {
            let each = if mark == "ask" { &asked } else { &charged };
            filled(&named(check(&format!("{mark} limits of a rule")), &words), |_| each.clone())
        }
    });
    let head = named(check("limits of a rule"), &words).replace("FORMAT", &format!("<{}", "BBBBddddd".repeat(count)));
    filled(&head, |_| body.clone())
}

/// The rules that have a special loop.
fn rules_of_loops() -> Vec<RuleForm<'static>> {
    let alone = RULES.iter().flat_map(|rule| forms(rule)).filter(RuleForm::is_alone);
    rules_of_checks().into_iter().flatten().chain(alone).collect()
}

/// The forms of the rules in the loop for several limits.
fn rules_of_checks() -> Vec<Vec<RuleForm<'static>>> {
    let has_text = |form: &RuleForm<'_>| form.sections.contains_key("advance");
    let rules = RULES.iter().map(|rule| forms(rule).into_iter().filter(has_text).collect::<Vec<_>>());
    rules.filter(|forms| !forms.is_empty()).collect()
}

/// The branch for checks of a policy with one limit of that rule.
fn one_limit(form: &RuleForm<'_>) -> String {
    // Fields are locals with the names of the fields.
    let mut names: Names =
        form.words("numbers").iter().zip(NUMBERS).map(|(name, local)| ((*name).to_owned(), local.to_owned())).collect();
    names.extend(in_loops());
    let body = filled(check("loop"), |mark| match mark {
        "answer" if !form.is_alone() => String::new(),
        mark => form.placed(&format!("{mark} one limit"), &names),
    });
    let before = form.helpers().or_else(|| form.find("before alone"));
    let helpers = before.map_or_else(String::new, |before| format!("local {}\n{}", before.argument, before.text));
    let when = form.when.map_or_else(String::new, |when| format!(" and {}", named(when, &names)));
    format!("if ({}){when} then\n{}", form.algorithms(), indented(&(helpers + &body), "  "))
}

/// The branch for checks of a policy with several limits.
fn several_limits() -> String {
    let rules = rules_of_checks();
    let branch = |(condition, body): (String, String)| format!("if {condition} then\n{}", indented(&body, "  "));
    let chosen = |branches: Vec<String>| branches.join("else") + "end\n";
    let each = |part: &str| {
        let branches = rules.iter().map(|forms| {
            let bodies = forms.iter().map(|form| form.one_of_several(part));
            let body = match &forms[..] {
                [form] => form.one_of_several(part).1,
                _ => chosen(bodies.map(branch).collect()),
            };
            branch((forms[0].algorithms(), body))
        });
        chosen(branches.collect())
    };
    let body = filled(check("loop"), |mark| match mark {
        "answer" => String::new(),
        mark => filled(check(&format!("{mark} several limits")), |_| each(mark)),
    });
    let helpers: Vec<_> =
        rules.iter().flatten().filter_map(RuleForm::helpers).map(|helpers| helpers.argument).collect();
    let names = Names::from_iter([("HELPERS".to_owned(), helpers.join(", "))]);
    filled(&named(check("several limits"), &names), |_| body.clone())
}

/// A section of `lua/check.lua`.
fn check(name: &str) -> &'static str {
    let section = sections(CHECK).find(|(other, _)| *other == name);
    section.unwrap_or_else(|| panic!("no section {name} in lua/check.lua")).1.text
}

/// The meaning of two words of a rule in the loops.
fn in_loops() -> [(String, String); 2] {
    [("LATEST", "now"), ("hold", "0")].map(|(name, text)| (name.to_owned(), text.to_owned()))
}

/// Replaces the marks in the text with the text that `of` returns, indented as they are.
fn filled(text: &str, of: impl Fn(&str) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        match line.trim().strip_prefix("--<").and_then(|mark| mark.strip_suffix('>')) {
            Some(mark) => out += &indented(&of(mark), &line[..line.len() - line.trim_start().len()]),
            None => out += line,
        }
    }
    out
}

fn indented(text: &str, by: &str) -> String {
    text.split_inclusive('\n').flat_map(|line| [if line == "\n" { "" } else { by }, line]).collect()
}

/// Replaces the words in the text. Comments, strings and names behind a point stay as they are.
fn named(text: &str, names: &Names) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut is_text, mut is_comment) = (false, false);
    for piece in text.split_inclusive(|letter| !is_of_word(letter)) {
        let word = piece.strip_suffix(|letter| !is_of_word(letter)).unwrap_or(piece);
        let is_member = matches!(out.as_bytes(), [.., first, b'.' | b':'] if *first != b'.');
        let is_kept = is_text || is_comment || is_member || word.is_empty();
        is_comment = (is_comment || !is_text && piece == "-" && out.ends_with('-')) && !piece.ends_with('\n');
        is_text ^= !is_comment && piece.ends_with('\'');
        out.push_str(if is_kept { word } else { names.get(word).map_or(word, String::as_str) });
        out.push_str(&piece[word.len()..]);
    }
    out
}

const fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Replaces the names of algorithms, operations, groupings and sections with numbers, because a local of Lua costs each
/// call that makes it. So these numbers stand once, in Rust.
fn numbered(text: &str) -> String {
    let stored = stored();
    let algorithms = stored.iter().zip(1_u8..).map(|(stored, number)| (upper(stored.name), number.to_string()));
    let others = LINE_NUMBERS.into_iter().chain(script_numbers()).map(|(name, it)| (name.to_owned(), it.to_string()));
    let numbers = OPERATIONS
        .iter()
        .chain(&GROUPINGS)
        .chain(&SECTIONS)
        .map(|(name, number)| ((*name).to_owned(), number.to_string()));
    let of_algorithms = |name: &str, text: fn(&Stored) -> String| {
        (name.to_owned(), format!("{{ {} }}", stored.iter().map(text).collect::<Vec<_>>().join(", ")))
    };
    let tables = [
        of_algorithms("FIELDS_OF_ALGORITHMS", |stored| format!("'{}'", stored.field_codes())),
        of_algorithms("ITEMS_OF_ALGORITHMS", |stored| stored.item.to_string()),
        // True for the refunds that count: those without a Decision, and those by one.
        of_algorithms("COUNTS_REFUNDS", |stored| stored.counts_refunds.0.to_string()),
        of_algorithms("COUNTS_UNDONE", |stored| stored.counts_refunds.1.to_string()),
    ];
    named(text, &algorithms.chain(numbers).chain(others).chain(tables).collect())
}

/// Turns `FixedWindow` into `FIXED_WINDOW`.
fn upper(name: &str) -> String {
    let mut upper = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !upper.is_empty() {
            upper.push('_');
        }
        upper.push(letter.to_ascii_uppercase());
    }
    upper
}

#[cfg(test)]
mod tests;
