//! The declared options of the core decide types and properties of Python and Node, and a page of the documentation. They are the
//! page, and the text between the marks `options: NAME` and `options end` of a file.

use std::fmt::Write as _;

use crate::generated::read;
use tidegate::host::{
    ArgumentKind, CALL_OPTIONS, LAYER_OPTIONS, LIMIT_OPTIONS, LIMITER_OPTIONS, OptionDeclaration, OptionDefault,
    OptionKind, POLICY_OPTIONS, PolicyOption,
};

const WIDTH: usize = 120;
const PAGE: &str = "docs/reference/options.md";

/// A language that has the options.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// The crate.
    Rust,
    /// The wheel.
    Python,
    /// The npm package.
    Node,
}

impl Host {
    /// The type of an option, or `None` if the host has no such option.
    #[must_use]
    pub fn type_of(self, option: &OptionDeclaration) -> Option<String> {
        let (rust, python, node) = match option.kind {
            // The option of a policy has a different type.
            ArgumentKind::OnStoreError if option.default == OptionDefault::Nothing => {
                ("Option<OnStoreError>", "str | None", "OnStoreError")
            }
            ArgumentKind::Count if option.default == OptionDefault::Count(0) => ("u32", "int", "number"),
            ArgumentKind::Flag => ("bool", "bool", "boolean"),
            ArgumentKind::OptionalFlag => ("bool", "bool | None", "boolean"),
            ArgumentKind::Text => ("impl Into<String>", "str", "string"),
            ArgumentKind::Secret => ("impl Into<Vec<u8>>", "str | bytes | None", "string | Uint8Array"),
            ArgumentKind::Duration => ("Duration", "float | timedelta", "number"),
            ArgumentKind::Wait => ("Option<Duration>", "float | timedelta | None", "number"),
            ArgumentKind::Period => ("Option<Period>", "float | str | timedelta | None", "Duration"),
            ArgumentKind::Periods => (
                "Option<BlockFor>",
                "float | str | timedelta | Sequence[float | str | timedelta] | None",
                "Duration | readonly Duration[]",
            ),
            ArgumentKind::Overrides => {
                ("Option<Overrides>", "Mapping[str, Any] | None", "Readonly<Record<string, OverrideLike>>")
            }
            ArgumentKind::Count => ("usize", "int", "number"),
            ArgumentKind::Lease => ("Option<Lease>", "str | int | None", "number | string"),
            ArgumentKind::Priorities => {
                ("Option<Priorities>", "Mapping[str, str] | None", "Readonly<Record<string, string>>")
            }
            ArgumentKind::Priority => ("Option<String>", "str | None", "string"),
            ArgumentKind::OnStoreError => ("OnStoreError", "str", "OnStoreError"),
            ArgumentKind::Choice(words) if self == Self::Node => {
                return Some(words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" | "));
            }
            ArgumentKind::Choice(_) => ("", "str", ""),
            ArgumentKind::Store => (
                "impl Into<String>",
                "str | Iterable[str] | Rollout | KeyValueStore | AsyncKeyValueStore | None",
                "string | readonly string[] | Rollout | KeyValueStore",
            ),
            ArgumentKind::Policies => {
                ("Policy", "Mapping[str, Any] | None", "Readonly<Record<Name, string | Policy | PolicyDescription>>")
            }
            ArgumentKind::Clock => ("Arc<ManualClock>", "ManualClock | None", "ManualClock"),
            ArgumentKind::Listener => (
                "Arc<dyn Fn(&StoreChange) + Send + Sync>",
                "Callable[[StoreChange], object] | None",
                "((change: StoreChange) => void)",
            ),
            ArgumentKind::Logger => ("", "", "Logger | false"),
            ArgumentKind::WarningListener => ("Arc<dyn Fn(&str) + Send + Sync>", "", ""),
            ArgumentKind::BatchSize => ("usize", "", ""),
            ArgumentKind::Cost => ("impl Into<Cost>", "int | Mapping[str, int]", "Cost"),
            ArgumentKind::Meta => ("Option<Vec<u8>>", "str | bytes | None", "string | Uint8Array"),
            ArgumentKind::Signal => ("", "", "CancelSignal"),
            ArgumentKind::Decision => ("Option<&Decision>", "Decision | None", "Decision"),
            ArgumentKind::Limiter => ("", "Limiter | AsyncLimiter | None", "Limiter"),
            ArgumentKind::PolicyChoice => ("", "PolicyOption", "PolicyOption<Request>"),
            ArgumentKind::PolicyList => ("", "PolicyOption | None", "PolicyChoice<Request>"),
            ArgumentKind::RequestKey => ("", "Key | Callable[..., Any] | None", "KeyFunction<Request>"),
            ArgumentKind::RequestCost => ("", "int | Mapping[str, int] | Callable[..., Any]", "CostOption<Request>"),
            ArgumentKind::RequestMeta => ("", "str | bytes | Callable[..., Any] | None", "MetaOption<Request>"),
            ArgumentKind::RequestPriority => ("", "str | Callable[..., Any] | None", "PriorityOption<Request>"),
            ArgumentKind::RequestFunction => {
                ("", "Callable[..., Any] | None", "((request: Request) => Awaitable<boolean>)")
            }
            ArgumentKind::ResponseFunction => (
                "",
                "Callable[..., Any] | None",
                "((request: Request & Response, response: Response) => Awaitable<boolean>)",
            ),
            ArgumentKind::ActualCost => ("", "Callable[..., Any] | None", "SettleFunction<Request, Response>"),
            ArgumentKind::Refusal => (
                "",
                "Callable[..., Any] | None",
                "((request: Request, decision: Decision, response: Response) => unknown) | 'throw'",
            ),
            ArgumentKind::Headers => ("", "str", "HeaderChoice"),
            ArgumentKind::Methods => ("", "Iterable[str] | None", "readonly string[]"),
        };
        let name = [rust, python, node][self as usize];
        (!name.is_empty()).then(|| name.to_owned())
    }

    /// The name of an option as callers in this host write it.
    fn name_of(self, option: &OptionDeclaration) -> String {
        let mut words = option.name.split('_');
        if self != Self::Node {
            return option.name.to_owned();
        }
        let first = words.next().unwrap_or_default().to_owned();
        let name = words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..]);
        name + if matches!(option.kind, ArgumentKind::Duration | ArgumentKind::Wait) { "Ms" } else { "" }
    }

    fn default_of(self, option: &OptionDeclaration) -> Option<String> {
        let in_unit = |length: std::time::Duration| match self {
            Self::Node => format!("{} ms", grouped(length.as_millis() as usize)),
            _ => format!("{:?} seconds", length.as_secs_f64()),
        };
        Some(match option.default {
            OptionDefault::Nothing | OptionDefault::Required => return None,
            OptionDefault::Words(words) => words.to_owned(),
            OptionDefault::Text(text) => format!("`{text}`"),
            OptionDefault::Flag(flag) if self == Self::Python => if flag { "True" } else { "False" }.to_owned(),
            OptionDefault::Flag(flag) => flag.to_string(),
            OptionDefault::Count(count) => grouped(count),
            OptionDefault::Duration(length) => in_unit(length),
        })
    }

    /// The sentences about an option for this host, with the names of options as it spells them.
    fn documentation_of(self, option: &OptionDeclaration) -> String {
        let hosts = [("In Python ", Self::Python), ("In Node ", Self::Node)];
        let sentences = option.documentation.trim_end_matches('.').split(". ").filter_map(|sentence| {
            match hosts.iter().find(|(begin, _)| sentence.starts_with(begin)) {
                None => Some(sentence.to_owned()),
                Some((begin, host)) if *host == self => {
                    let rest = &sentence[begin.len()..];
                    Some(if rest.starts_with('`') { rest.to_owned() } else { rest[..1].to_uppercase() + &rest[1..] })
                }
                Some(_) => None,
            }
        });
        let mut text = sentences.map(|sentence| sentence + ".").collect::<Vec<_>>().join(" ");
        for (_, options) in groups() {
            for other in options {
                text = text.replace(&format!("`{}`", other.name), &format!("`{}`", self.name_of(&other)));
            }
        }
        text
    }

    /// An option as a member of a type.
    fn member(self, option: &OptionDeclaration, indent: &str) -> String {
        let Some(kind) = self.type_of(option) else { return String::new() };
        // In Python this is an argument by position.
        if self == Self::Python && option.kind == ArgumentKind::Store {
            return String::new();
        }
        let (name, mut documentation) = (self.name_of(option), self.documentation_of(option));
        if let Some(default) = self.default_of(option) {
            write!(documentation, " Default: {default}.").expect("a text");
        }
        if self == Self::Python {
            return comment(&documentation, indent, "#") + &format!("{indent}{name}: {kind}\n");
        }
        let member = match option.default {
            OptionDefault::Required => format!("{indent}{name}: {kind};\n"),
            _ => format!("{indent}{name}?: {kind} | undefined;\n"),
        };
        block(&documentation, indent) + &member
    }
}

fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A text in comment lines that begin with a mark.
fn comment(text: &str, indent: &str, mark: &str) -> String {
    let mut lines = String::new();
    let mut line = format!("{indent}{mark}");
    for word in text.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(lines, "{line}").expect("a text");
            line = format!("{indent}{mark}");
        }
        line = line + " " + word;
    }
    lines + &line + "\n"
}

/// A text as a documentation comment of TypeScript.
fn block(text: &str, indent: &str) -> String {
    let line = format!("{indent}/** {text} */\n");
    if line.chars().count() <= WIDTH {
        return line;
    }
    format!("{indent}/**\n{}{indent} */\n", comment(text, &format!("{indent} "), "*"))
}

/// All options, in groups of those that appear together.
fn groups() -> Vec<(&'static str, Vec<OptionDeclaration>)> {
    let limiter = || LIMITER_OPTIONS.iter().map(|option| option.declaration);
    let mut groups = vec![
        ("policy", POLICY_OPTIONS.iter().map(PolicyOption::declaration).collect()),
        ("limiter", limiter().collect()),
        // Python's type of a limiter names its policies, so they are a separate group.
        ("policies", limiter().filter(|option| option.kind == ArgumentKind::Policies).collect()),
        ("settings", limiter().filter(|option| option.kind != ArgumentKind::Policies).collect()),
        ("layer", LAYER_OPTIONS.iter().filter(|option| option.name != "default").copied().collect()),
        ("default", LAYER_OPTIONS.iter().filter(|option| option.name == "default").copied().collect()),
        ("limit", LIMIT_OPTIONS.to_vec()),
    ];
    groups.extend(CALL_OPTIONS.iter().map(|(call, options)| (*call, options.to_vec())));
    groups
}

/// The property of a policy in the module for Python.
fn getter(option: &PolicyOption) -> String {
    let (kind, convert) = match option.kind {
        OptionKind::Flag => ("bool", ""),
        OptionKind::OnStoreError => ("Option<&'static str>", ".map(OnStoreError::name)"),
        OptionKind::Duration => ("Option<f64>", ".map(|period| period.micros() as f64 / 1e6)"),
        OptionKind::BlockFor => ("Option<BlockLengths>", ".as_ref().map(block_lengths)"),
        OptionKind::Count { .. } => ("u32", ""),
        OptionKind::Lease => ("Option<LeaseValue>", ".map(lease_value)"),
        OptionKind::Priorities => ("Option<BTreeMap<String, String>>", ".as_ref().map(parts_by_class)"),
        OptionKind::Overrides => ("Option<BTreeMap<String, String>>", ".as_ref().map(override_texts)"),
    };
    let (name, documentation) = (option.name, Host::Python.documentation_of(&option.declaration()));
    let body = format!("        self.inner.options().{name}{convert}\n");
    comment(&documentation, "    ", "///")
        + &format!("    #[getter]\n    fn {name}(&self) -> {kind} {{\n{body}    }}\n\n")
}

/// The property of a policy in TypeScript.
fn property(option: &PolicyOption) -> String {
    let (kind, unit) = match option.kind {
        OptionKind::Flag => ("boolean", ""),
        OptionKind::OnStoreError => ("OnStoreError | undefined", ""),
        OptionKind::Duration => ("number | undefined", "Ms"),
        OptionKind::BlockFor => ("number | readonly number[] | undefined", "Ms"),
        OptionKind::Count { .. } => ("number", ""),
        OptionKind::Lease => ("number | string | undefined", ""),
        OptionKind::Priorities => ("Record<string, string> | undefined", ""),
        OptionKind::Overrides => ("Readonly<Record<string, string>> | undefined", ""),
    };
    let declaration = option.declaration();
    let name = Host::Node.name_of(&declaration) + unit;
    let body = format!("    return this.#options['{name}'] as {kind};\n");
    block(&Host::Node.documentation_of(&declaration), "  ") + &format!("  get {name}(): {kind} {{\n{body}  }}\n\n")
}

/// The file with the expected text at each mark.
fn written(file: &str, text_of: impl Fn(&str, &str) -> String) -> String {
    let (mut text, mut is_inside) = (String::new(), false);
    for line in read(file).lines() {
        if line.ends_with(" options end") {
            is_inside = false;
        }
        if !is_inside {
            text += &format!("{line}\n");
        }
        let mark = line.trim_start();
        let name = mark.strip_prefix("// options: ").or_else(|| mark.strip_prefix("# options: "));
        if let Some(name) = name {
            text += &text_of(name, &line[..line.len() - mark.len()]);
            is_inside = true;
        }
    }
    assert!(!is_inside, "{file}: a mark has no end");
    text
}

fn members(host: Host, name: &str, indent: &str) -> String {
    let groups = groups();
    let (_, options) = groups.iter().find(|(group, _)| *group == name).unwrap_or_else(|| panic!("no options: {name}"));
    options.iter().map(|option| host.member(option, indent)).collect()
}

/// The files with text that the declarations decide.
pub(crate) fn files() -> Vec<(String, String)> {
    let python = ["_options.py", "web/options.py"].map(|file| format!("bindings-python/python/tidegate/{file}"));
    let node = ["policy.ts", "limiter-options.ts", "call-options.ts", "http/rate-limit-options.ts"];
    let mut files = vec![(PAGE.to_owned(), page())];
    files.extend(python.map(|file| {
        let text = written(&file, |name, indent| members(Host::Python, name, indent));
        (file, text)
    }));
    let file = "bindings-python/src/policy.rs".to_owned();
    let text = written(&file, |_, _| POLICY_OPTIONS.iter().map(getter).collect());
    files.push((file, text));
    files.extend(node.map(|file| format!("bindings-node/lib/{file}")).map(|file| {
        let text = written(&file, |name, indent| match name {
            "properties of a policy" => POLICY_OPTIONS.iter().map(property).collect(),
            _ => members(Host::Node, name, indent),
        });
        (file, text)
    }));
    files
}

/// A table of the documentation.
fn table(hosts: &[Host], options: &[OptionDeclaration]) -> String {
    let title = |host: &Host| match host {
        Host::Rust => "Rust",
        Host::Python => "Python",
        Host::Node => "Node",
    };
    let mut text = format!("| {} | default | |\n", hosts.iter().map(title).collect::<Vec<_>>().join(" | "));
    text += &format!("|{}\n", "---|".repeat(hosts.len() + 2));
    for option in options {
        let cell = |host: &Host| {
            // In Rust these are methods of the builder.
            if *host == Host::Rust && option.kind == ArgumentKind::Policies {
                return "`policy(name, notation)`, `named(Policy)`".to_owned();
            }
            let named = |kind: String| format!("`{}`: `{}`", host.name_of(option), kind.replace('|', "\\|"));
            host.type_of(option).map(named).unwrap_or_default()
        };
        let cells: Vec<String> = hosts.iter().map(cell).collect();
        let default = match option.default {
            OptionDefault::Required => "required".to_owned(),
            _ => Host::Rust.default_of(option).unwrap_or_default(),
        };
        text += &format!("| {} | {default} | {} |\n", cells.join(" | "), option.documentation);
    }
    text
}

fn page() -> String {
    let all = [Host::Python, Host::Node, Host::Rust];
    let mut page = "# Options\n\nEvery option of policies, limiters, calls and web layers, as the core declares them. Lengths of time are \
         seconds in\nPython and milliseconds in Node.\n"
        .to_owned();
    let of = |name: &str| groups().into_iter().find(|(group, _)| *group == name).expect("a group").1;
    page += "\n## Of a policy\n\nIn a [policy file](policy-file.md) they have the names of Python.\n\n";
    page += &table(&all, &of("policy"));
    page += "\n## Of a limiter\n\n";
    page += &table(&all, &of("limiter"));
    page += "\n## Of calls\n";
    for (call, options) in CALL_OPTIONS {
        page += &format!("\n### `{call}`\n\n{}", table(&all, options));
    }
    page += "\n## Of a web layer\n\nThe methods of the layer for tower are on [docs.rs](rust.md).\n\n";
    page += &table(&all[..2], LAYER_OPTIONS);
    page += "\n## Of a limit of a web layer\n\nGiven to a layer, they are the defaults of its limits, except `skip` and `enabled`.\n\n";
    page += &table(&all[..2], LIMIT_OPTIONS);
    page
}
