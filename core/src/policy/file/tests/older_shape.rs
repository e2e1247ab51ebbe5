//! `limits: [{name, config: [{limit, period}]}]`, the shape of older files.

use super::super::super::lint;
use super::errors::fails;
use super::*;

const OLDER: &str = "\
limits:
  - name: auth.createToken
    config:
      - limit: 20
        period: 60
      - {limit: 5, period: \"3\"}
  - {name: search, config: [{limit: 7, period: 1.5}, {limit: 600, period: 10m}]}
";

const OLDER_TOML: &str = r#"
[[limits]]
name = "auth.createToken"
config = [{limit = 20, period = 60}, {limit = 5, period = "3"}]
[[limits]]
name = "search"
[[limits.config]]
limit = 7
period = 1.5
[[limits.config]]
limit = 600
period = "10m"
"#;

const OLDER_JSON: &str = r#"{"limits": [
  {"name": "auth.createToken", "config": [{"limit": 20, "period": 60}, {"limit": 5, "period": "3"}]},
  {"name": "search", "config": [{"limit": 7, "period": 1.5}, {"limit": 600, "period": "10m"}]}
]}"#;

#[test]
fn it_means_the_same_as_policies() {
    let newer = yaml("policies: {auth.createToken: 20/minute; 5/3s, search: 7/1500ms; 600/10m}");
    for (text, format) in [(OLDER, Format::Yaml), (OLDER_TOML, Format::Toml), (OLDER_JSON, Format::Json)] {
        let older = read(text, format).unwrap();
        assert_eq!(older.policies(), newer.policies(), "{}", format.name());
    }
    let older = yaml(OLDER);
    assert_eq!(older.location("auth.createToken").unwrap().to_string(), "t:2:11");
    assert_eq!(older.limit_location(0, 1).unwrap().to_string(), "t:6:9");
    let both = yaml("store: memory://\nlimits: [{name: a, config: [{limit: 5, period: 1}]}]\npolicies: {b: 5/s}");
    assert_eq!(both.policies().iter().map(Policy::name).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(yaml("limits: []").policies(), []);
    let variables = "limits: [{name: '${WORD}', config: [{limit: '${COUNT}', period: '${COUNT}'}]}]";
    assert_eq!(yaml(variables).get("minuet").unwrap().to_string(), "7/7s");
    assert_eq!(yaml("limits: [{name: a, config: [{limit: 5, period: '1.5'}]}]").policies()[0].to_string(), "5/1500ms");
}

#[test]
fn lint_offers_the_new_form() {
    for (text, format, first, second) in [
        (OLDER, Format::Yaml, "`auth.createToken: 20/minute; 5/3s`", "`search: 7/1500ms; 600/10 minutes`"),
        (
            OLDER_TOML,
            Format::Toml,
            "`\"auth.createToken\" = \"20/minute; 5/3s\"`",
            "`\"search\" = \"7/1500ms; 600/10 minutes\"`",
        ),
        (
            OLDER_JSON,
            Format::Json,
            "`\"auth.createToken\": \"20/minute; 5/3s\"`",
            "`\"search\": \"7/1500ms; 600/10 minutes\"`",
        ),
    ] {
        let warnings = lint(&read(text, format).unwrap());
        let messages: Vec<_> = warnings.iter().map(|warning| warning.message.as_str()).collect();
        assert_eq!(messages.len(), 2, "{messages:?}");
        for (message, new_form) in messages.iter().zip([first, second]) {
            assert!(message.contains("older files") && message.contains("under `policies`"), "{message}");
            assert!(message.contains(new_form), "{message}");
        }
        assert!(warnings.iter().all(|warning| warning.location.is_some()));
    }
    // The offered text can be read, and means the same.
    let odd = yaml("limits: [{name: 'a: #b \"c\"', config: [{limit: 5, period: 1}]}]");
    let message = lint(&odd).remove(0).message;
    let offered = message.split('`').nth(3).unwrap();
    assert_eq!(yaml(&format!("policies:\n  {offered}\n")).policies(), odd.policies(), "{message}");
    let text = "limits: [{name: a, config: [{limit: 5, period: 1.0005}, {limit: 7, period: 60}]}]";
    for (format, head) in [(Format::Yaml, "policies:\n  "), (Format::Toml, "[policies]\n")] {
        let text = match format {
            Format::Toml => {
                "[[limits]]\nname = \"a\"\nconfig = [{limit = 5, period = 1.0005}, {limit = 7, period = 60}]"
            }
            _ => text,
        };
        let fine = read(text, format).unwrap();
        let message = lint(&fine).remove(0).message;
        let offered = message.split('`').nth(3).unwrap();
        assert_eq!(read(&format!("{head}{offered}\n"), format).unwrap().policies(), fine.policies(), "{message}");
    }
    assert!(lint(&yaml("policies: {auth.createToken: 20/minute; 5/3s}")).is_empty());
}

#[test]
fn errors_have_a_location() {
    for (text, line, column, words) in [
        ("limits: 5/s", 1, 9, "must be a list of {name, config}, not the text `5/s`"),
        ("limits: {a: 5/s}", 1, 9, "must be a list of {name, config}, not a map"),
        ("limits:", 1, 7, "must be a list"),
        ("limits: [5/s]", 1, 10, "must be a map with `name` and `config`, not the text `5/s`"),
        ("limits: [{config: [{limit: 5, period: 1}]}]", 1, 10, "no `name`"),
        ("limits: [{name: a}]", 1, 10, "no `config`"),
        ("limits: [{name: a, conifg: []}]", 1, 20, "did you mean `config`?"),
        (
            "limits: [{name: a, config: [{limit: 5, period: 1}], shadow: true}]",
            1,
            53,
            "write policies with options under `policies`",
        ),
        ("limits: [{name: 5, config: [{limit: 5, period: 1}]}]", 1, 17, "`name` must be a text, not the number 5"),
        ("limits: [{name: '', config: [{limit: 5, period: 1}]}]", 1, 17, "name has 0 bytes"),
        ("limits: [{name: a, config: []}]", 1, 28, "the list is empty"),
        ("limits: [{name: a, config: {limit: 5, period: 1}}]", 1, 28, "`config` must be a list"),
        ("limits: [{name: a, config: [5/s]}]", 1, 29, "must be a map with `limit` and `period`"),
        ("limits: [{name: a, config: [{limit: 5}]}]", 1, 29, "no `period`"),
        ("limits: [{name: a, config: [{period: 5}]}]", 1, 29, "no `limit`"),
        ("limits: [{name: a, config: [{limit: 5, perod: 5}]}]", 1, 40, "did you mean `period`?"),
        (
            "limits: [{name: a, config: [{limit: 5, period: 5, burst: 5}]}]",
            1,
            51,
            "write limits with other numbers under `policies`",
        ),
        ("limits: [{name: a, config: [{limit: '5', period: 5}]}]", 1, 37, "whole number"),
        ("limits: [{name: a, config: [{limit: 5, period: 0}]}]", 1, 48, "a number of seconds from 0.001"),
        ("limits: [{name: a, config: [{limit: 5, period: '0'}]}]", 1, 48, "a number of seconds from 0.001"),
        ("limits: [{name: a, config: [{limit: 5, period: 3 minuets}]}]", 1, 50, "did you mean `minutes`?"),
        (
            "limits: [{name: a, config: [{limit: 5, period: 1}]}, {name: a, config: [{limit: 5, period: 1}]}]",
            1,
            61,
            "`a` is here twice: it stands in line 1",
        ),
        ("policies: {a: 5/s}\nlimits: [{name: a, config: [{limit: 5, period: 1}]}]", 2, 17, "it stands in line 1"),
        ("limits: [{name: a, config: [{limit: 5, period: 1}]}]\npolicies: {a: 5/s}", 2, 12, "it stands in line 1"),
    ] {
        let message = fails(text, Format::Yaml, line, column);
        assert!(message.contains(words), "{text}\n{message}");
    }
    for (text, line, column, words) in [
        ("[[limits]]\nname = \"a\"\nconfig = [{limit = 5, period = true}]", 3, 32, "a number of seconds"),
        ("[[limits]]\nname = \"a\"\nname = \"b\"", 3, 1, "twice"),
        ("[limits]\nname = \"a\"", 1, 1, "must be a list of {name, config}"),
    ] {
        let message = fails(text, Format::Toml, line, column);
        assert!(message.contains(words), "{text}\n{message}");
    }
    let message = fails("{\"limits\": [{\"name\": \"a\",\n \"config\": 5}]}", Format::Json, 2, 12);
    assert!(message.contains("`config` must be a list"), "{message}");
}

#[test]
fn no_error_repeats_a_password() {
    for text in [
        "limits: '${REDIS_URL}'",
        "limits: ['${REDIS_URL}']",
        "limits: [{name: ['${REDIS_URL}'], config: '${REDIS_URL}'}]",
        "limits: [{name: a, config: ['${REDIS_URL}']}]",
        "limits: [{name: a, config: [{limit: '${REDIS_URL}', period: 5}]}]",
        "limits: [{name: a, config: [{limit: 5, period: '${REDIS_URL}'}]}]",
        "limits: [{name: '${REDIS_URL}', config: [{limit: 5, period: 1}]}, {name: '${REDIS_URL}', config: [{limit: 5, period: 1}]}]",
    ] {
        let error = read(text, Format::Yaml).expect_err(text);
        assert!(!error.message().contains("hunter2"), "{error}");
    }
}
