//! `store`: a URL, shards, or a rollout. `prefix`.

use super::errors::fails;
use super::*;

fn stores(text: &str) -> (Vec<String>, Option<(String, f64)>) {
    let file = yaml(&format!("store: {text}\npolicies: {{}}"));
    let rollout = file.rollout().map(|(new, percent)| (new.to_owned(), percent));
    (file.store().unwrap_or_default().to_vec(), rollout)
}

#[test]
fn shards_are_a_list() {
    let urls = ["redis://a".to_owned(), "redis://b".to_owned()];
    for text in [
        "[redis://a, redis://b]",
        "{shards: [redis://a, '${OTHER:-redis://b}']}",
        "{shards: [redis://a, ' redis://b ']}",
    ] {
        assert_eq!(stores(text), (urls.to_vec(), None), "{text}");
    }
}

#[test]
fn a_rollout_has_two_urls_and_a_share() {
    let expected = |percent| (vec!["redis://a".to_owned()], Some(("redis://b".to_owned(), percent)));
    assert_eq!(stores("{rollout: {from: redis://a, to: redis://b, percent: 5}}"), expected(5.0));
    assert_eq!(stores("{rollout: {percent: 0.5, to: '${NEW:-redis://b}', from: redis://a}}"), expected(0.5));
    assert_eq!(stores("{rollout: {from: redis://a, to: redis://b, percent: '${COUNT}'}}"), expected(7.0));
    assert_eq!(stores("{rollout: {from: '${OLD:-redis://a}', to: redis://b, percent: '${P:-12.5}'}}"), expected(12.5));
    let toml = "[store.rollout]\nfrom = \"redis://a\"\nto = \"redis://b\"\npercent = 100\n[policies]\n";
    let json = r#"{"store": {"rollout": {"from": "redis://a", "to": "redis://b", "percent": 100}}, "policies": {}}"#;
    for (text, format) in [(toml, Format::Toml), (json, Format::Json)] {
        let file = read(text, format).unwrap();
        assert_eq!(
            (file.store().unwrap(), file.rollout()),
            (&["redis://a".to_owned()][..], Some(("redis://b", 100.0)))
        );
    }
}

#[test]
fn a_wrong_shape_has_a_location_and_no_secret() {
    for (text, column, words) in [
        ("{}", 8, "`store` must be a URL"),
        ("{rolout: {from: redis://:hunter2@a}}", 9, "did you mean `rollout`?"),
        ("{redis://:hunter2@a: 5}", 9, "unknown name `…:…` (not shown"),
        ("{shards: []}", 17, "`shards` must be a list of URLs"),
        ("{shards: redis://:hunter2@a}", 17, "`shards` must be a list of URLs"),
        ("{shards: [redis://:hunter2@a, 5]}", 38, "a shard must be a URL"),
        (
            "{shards: [redis://a], rollout: {from: redis://a, to: redis://b, percent: 5}}",
            30,
            "one of `shards` and `rollout`",
        ),
        ("{rollout: redis://:hunter2@a}", 18, "`rollout` must be a map with from, to, percent"),
        ("{rollout: {from: redis://:hunter2@a, to: redis://b}}", 9, "no `percent`"),
        ("{rollout: {from: redis://:hunter2@a, percent: 5}}", 9, "no `to`"),
        ("{rollout: {to: redis://:hunter2@a, percent: 5}}", 9, "no `from`"),
        ("{rollout: {from: [redis://:hunter2@a], to: redis://b, percent: 5}}", 25, "`from` must be a URL"),
        ("{rollout: {from: redis://:hunter2@a, to: '', percent: 5}}", 49, "`to` must be a URL"),
        ("{rollout: {from: redis://a, to: redis://b, percent: 101}}", 60, "a number from 0 to 100, not the number 101"),
        ("{rollout: {from: redis://a, to: redis://b, percent: -1}}", 60, "a number from 0 to 100"),
        ("{rollout: {from: redis://a, to: redis://b, percent: .nan}}", 60, "a number from 0 to 100"),
        ("{rollout: {from: redis://a, to: redis://b, percent: '5'}}", 60, "not the text `5`"),
        ("{rollout: {from: redis://a, to: redis://b, percent: '${REDIS_URL}'}}", 60, "not a text"),
        ("{rollout: {from: redis://a, to: redis://b, percnt: 5}}", 51, "did you mean `percent`?"),
        ("[redis://:hunter2@a, {rollout: 5}]", 29, "`store` must be a URL"),
    ] {
        let text = format!("store: {text}\npolicies: {{}}");
        let message = fails(&text, Format::Yaml, 1, column);
        assert!(message.contains(words), "{text}\n{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
}

#[test]
fn a_prefix_is_a_text_that_keys_can_begin_with() {
    assert_eq!(yaml("policies: {}").prefix(), None);
    for text in ["prefix: shop\npolicies: {}", "policies: {}\nprefix: '${SHOP:-shop}'"] {
        assert_eq!(yaml(text).prefix(), Some("shop"), "{text}");
    }
    let longest = "a".repeat(128);
    assert_eq!(yaml(&format!("prefix: {longest}\npolicies: {{}}")).prefix(), Some(&*longest));
    for (text, words) in [
        ("5", "`prefix` must be a text, not the number 5"),
        ("[a]", "must be a text"),
        ("''", "from 1 to 128 bytes"),
        (&*format!("{longest}a"), "from 1 to 128 bytes"),
        ("'a{b'", "no braces"),
        ("'redis://:hunter2@{a}'", "the prefix a URL cannot be used"),
    ] {
        let message = fails(&format!("policies: {{}}\nprefix: {text}"), Format::Yaml, 2, 9);
        assert!(message.contains(words) && !message.contains("hunter2"), "{text}\n{message}");
    }
}
