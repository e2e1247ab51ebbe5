use super::super::{Format, PolicyFile};
use super::*;

fn warnings(policies: &str) -> Vec<String> {
    let text = format!("policies: {policies}");
    let file = PolicyFile::parse(&text, Format::Yaml, Some("t")).unwrap_or_else(|error| panic!("{text}\n{error}"));
    lint(&file).iter().map(Warning::to_string).collect()
}

fn warns(policies: &str, words: &str) {
    let found = warnings(policies);
    assert!(found.len() == 1 && found[0].contains(words), "{policies}\n{found:#?}");
}

fn quiet(policies: &str) {
    let found = warnings(policies);
    assert!(found.is_empty(), "{policies}\n{found:#?}");
}

#[test]
fn a_limit_that_another_makes_useless() {
    assert_eq!(
        warnings("\n  a: [10/10s, 600/600s]"),
        [
            "t:2:15: a: 600/10 minutes never decides anything: 10/10s never lets more than 600 pass in that time; remove it, \
          or lower its count below 600"
        ]
    );
    for useless in [
        "5/s; 10/s",
        "5/s; 5/s",
        "10/s; 10/minute",
        "fixed-window 10/10s; fixed-window 600/600s",
        "calendar-window 10/minute; calendar-window 600/hour",
        "calendar-window 10/day; calendar-window 310/month",
        "calendar-window 10/month; calendar-window 120/year",
        "gcra 5/s burst 10; gcra 6/s burst 10",
        "gcra 1/s burst 10; 70/minute",
        "5/s; gcra 5/s burst 5",
        "concurrency 3; concurrency 5",
        "leaky-bucket 5/s burst 3; leaky-bucket 5/s burst 4",
        "gcra 5/s; leaky-bucket 5/s",
    ] {
        warns(&format!("{{a: '{useless}'}}"), "never decides anything");
    }
    for useful in [
        "20/minute; 5/3s",
        "10/10s; 599/600s",
        "5/s; 100/minute; 1000/hour",
        "gcra 100/s burst 200",
        "gcra 1/s burst 10; 69/minute",
        "fixed-window 10/10s; 600/600s",
        "calendar-window 10/day; calendar-window 309/month",
        "calendar-window 70/week; calendar-window 300/month",
        "10/day; calendar-window 300/month",
        "gcra 4/s; leaky-bucket 5/s burst 3",
        "concurrency 5; 5/s",
        "concurrency 3 ttl 1s; concurrency 5 ttl 1h",
    ] {
        quiet(&format!("{{a: '{useful}'}}"));
    }
}

/// An advice names a number, and below it the limit decides.
#[test]
fn a_count_below_the_number_of_the_advice_helps() {
    let mut advised = 0;
    for (strict, short) in [
        ("calendar-window 10/minute", "hour"),
        ("calendar-window 10/hour", "day"),
        ("calendar-window 10/day", "month"),
        ("calendar-window 10/day", "year"),
        ("calendar-window 10/month", "year"),
        ("calendar-window 7/week", "month"),
        ("calendar-window 10/3 months", "year"),
        ("fixed-window 10/10s", "hour"),
        ("10/minute", "hour"),
        ("sliding-log 10/minute", "day"),
        ("gcra 1/minute burst 5", "hour"),
        ("fixed-window 10/7s", "minute"),
        ("calendar-window 10/minute", "day"),
    ] {
        for kind in ["calendar-window", "fixed-window", "sliding-window", "sliding-log", "sliding-counter"] {
            let with = |count: u64| warnings(&format!("{{a: '{strict}; {kind} {count}/{short}'}}"));
            let of = |found: &[String]| {
                let warning = found.iter().find(|warning| warning.contains("never decides"))?.clone();
                let number: u64 = warning.split_once("lower its count below ")?.1.split(' ').next()?.parse().ok()?;
                Some((warning, number))
            };
            let Some((warning, number)) = of(&with(10_000_000)) else { continue };
            advised += 1;
            let decides = |count: u64| !with(count).iter().any(|warning| warning.contains("never decides"));
            assert!(decides(number - 1) && !decides(number), "{warning}");
            assert_eq!(of(&with(number)).map(|(_, number)| number), Some(number), "{warning}");
        }
    }
    assert!(advised > 20, "{advised}");
}

#[test]
fn overlapping_names() {
    warns("{auth.create-token: 5/s, AuthCreate_Token: 5/s}", "differs from `auth.create-token` only in case");
    warns("{5/minute: 6/minute}", "is also a notation");
    quiet("{auth: 5/s, auth2: 5/s, 5/minute: 5/minute}");
}

#[test]
fn numbers_that_do_not_do_what_they_seem_to() {
    warns("{a: 0/s}", "always denies");
    warns("{a: gcra 5/s burst 0}", "a burst of 0 always denies");
    warns("{a: token-bucket 100/s burst 10}", "below the count");
    warns("{a: [{count: 5, period: 1, precision: 1}]}", "late");
    warns("{a: [{count: 30, period: 1, precision: 60}]}", "sliding-log");
    warns("{a: calendar-window 5/5 months}", "line up");
    warns("{a: calendar-window 5/7 hours}", "line up");
    warns("{a: calendar-window 5/30 days}", "line up");
    warns("{a: 5/month}", "30 days");
    warns("{a: fixed-window 5/year}", "360 days");
    quiet(
        "{a: calendar-window 5/3 months, b: calendar-window 5/8h, c: leaky-bucket 100/s burst 10, d: calendar-window 5/w, e: concurrency 5 ttl 1 month}",
    );
}

#[test]
fn options_that_contradict() {
    warns("{a: {limits: 5/hour, block_for: 10m}}", "is over before 5/hour");
    warns("{a: {limits: 5/s, on_store_error: closed, shadow: true}}", "denies when the store fails");
    quiet(
        "{a: {limits: 5/hour; 1/s, block_for: 10m}, b: {limits: 'gcra 100/hour', block_for: 1m, journal: 5, count_denied: true}}",
    );
    // A shadow reports how long the block would be.
    quiet("{a: {limits: 5/s, block_for: 10m, shadow: true}}");
}

#[test]
fn bounds_do_not_overflow() {
    let count = 1_000_000_000_000_u64;
    warnings(&format!(
        "{{a: 'gcra {count}/10 years burst {count}; {count}/1ms; calendar-window {count}/10 years; fixed-window 1/1ms'}}"
    ));
}

#[test]
fn policies_of_code_have_the_warnings_of_a_file() {
    let policy = Policy::parse("10/10s; 600/600s").unwrap();
    let found = policy.lint();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].location, None);
    assert_eq!(
        format!("t:1:12: {}", found[0]).replace("10/10s; 600/10 minutes: ", "a: "),
        warnings("{a: 10/10s; 600/600s}")[0].replace("t:1:23: ", "t:1:12: ")
    );
    let named = |name: &str| Policy::parse("5/s").unwrap().named(name).unwrap();
    assert_eq!(lint_policies(&[named("a-b"), named("AB")]).len(), 1);
    assert_eq!(lint_policies(&[named("a"), named("b")]), []);
    assert_eq!(named("5/minute").lint().len(), 1);
    // The name of a policy without one leaves the precision out.
    let limit = policy.limits()[0].clone().with_precision(10).unwrap();
    assert_eq!(Policy::new(vec![limit], crate::Options::default()).unwrap().lint(), []);
}

#[test]
fn a_text_is_a_notation_or_the_name_of_a_file() {
    let warnings = lint_text("10/10s; 600/600s").unwrap();
    assert_eq!((warnings.len(), &warnings[0].location), (1, &Some(SourceLocation::new(None, 1, 9))));
    assert_eq!(lint_text("20/minute; 5/3s").unwrap(), []);
    for (text, words) in [
        ("missing.yaml", "missing.yaml: the policy file cannot be read"),
        ("conf.d/5/missing.toml", "cannot be read"),
        ("v1.2/policies.txt", "ends in .yaml"),
        ("policies", "ends in .yaml"),
        ("5/1.5s", "5/1.5s"),
        ("20/minuet", "did you mean `minute`?"),
        ("redis://:hunter2@h", "URL"),
        ("redis://:hunter2@h.example", "URL"),
    ] {
        let error = lint_text(text).unwrap_err();
        assert!(error.message().contains(words) && error.code() == "policy_invalid", "{text}: {error}");
        assert!(!error.message().contains("hunter2"), "{error}");
    }
}

#[test]
fn a_lease_that_never_takes_a_unit() {
    let warnings = |limits: &str, lease: &str| -> Vec<String> {
        let options = crate::Options { lease: Some(lease.parse().unwrap()), ..crate::Options::default() };
        let policy = Policy::new(Policy::parse(limits).unwrap().limits().to_vec(), options).unwrap();
        policy.lint().into_iter().map(|warning| warning.message).collect()
    };
    assert_eq!(warnings("1000/minute", "5%"), [""; 0]);
    assert!(warnings("1000/minute; fixed-window 20/s", "5%")[0].contains("is 1 of the units"));
    assert!(warnings("10/minute", "1%")[0].contains("is 0 of the units"));
    assert!(warnings("gcra 1000/s burst 10", "50%")[0].contains("too short to lease"));
    assert!(warnings("sliding-log 100/30ms", "50%")[0].contains("too short to lease"));
}

#[test]
fn a_day_that_months_lack_and_calendars_that_differ() {
    warns(
        "{a: 'calendar-window 5/month from day 30'}",
        "some months have no day 30: there the window begins on the last day",
    );
    quiet("{a: 'calendar-window 5/month from day 28; calendar-window 5/year from day 31'}");
    warns(
        "{a: 'calendar-window 5/day in Asia/Tokyo; calendar-window 200/month in Asia/Tokyo'}",
        "never decides anything",
    );
    quiet("{a: 'calendar-window 5/day in Asia/Tokyo; calendar-window 155/month'}");
}

#[test]
fn a_quota_of_a_day_on_a_store_that_may_lose_commits() {
    let found = |store: &str, limit: &str| {
        let text = format!("store: {store}\npolicies: {{a: '{limit}'}}");
        let file = PolicyFile::parse(&text, Format::Yaml, Some("t")).expect("a file");
        lint(&file).iter().any(|warning| warning.message.contains("durability=sync"))
    };
    assert!(found("postgresql://db/app", "100/day; 5/s") && found("postgres://db/app", "calendar-window 5/month"));
    assert!(!found("postgresql://db/app?durability=sync", "100/day") && !found("redis://db", "100/day"));
    assert!(!found("postgresql://db/app", "100/hour; concurrency 5 ttl 2d"));
}
