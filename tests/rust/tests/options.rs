//! Calls and methods that are written by hand take the options that the core declares. `tests/rust/tests/generated.rs` compares
//! the types and pages that are generated.

use tidegate::host::{ArgumentKind, CALL_OPTIONS, LIMITER_OPTIONS, OptionDefault};
use tidegate_tests::generated::read;
use tidegate_tests::options::Host;

const STUB: &str = "bindings-python/python/tidegate/_tidegate.pyi";

/// Arguments by position have an order that a table cannot give, so the signatures are written by hand, and compared.
#[test]
fn calls_in_python_take_the_arguments_that_the_core_declares() {
    let stub = read(STUB).split_whitespace().collect::<Vec<_>>().join(" ");
    for (call, options) in CALL_OPTIONS {
        let signatures: Vec<&str> = stub.split(&format!(" def {call}(")).skip(1).collect();
        let limiters = signatures.iter().filter(|text| text.contains("policy: Name | Policy, key: str"));
        let limiters: Vec<&str> = limiters.filter_map(|text| text.split_once(") ->").map(|(own, _)| own)).collect();
        assert!(limiters.len() >= 2, "{call}: {signatures:?}");
        for option in *options {
            let Some(kind) = Host::Python.type_of(option) else { continue };
            let default = match option.default {
                OptionDefault::Required => String::new(),
                OptionDefault::Count(count) if option.kind == ArgumentKind::Wait => format!(" = {count}.0"),
                OptionDefault::Count(count) => format!(" = {count}"),
                OptionDefault::Flag(_) => " = False".to_owned(),
                _ => " = None".to_owned(),
            };
            let argument = format!("{}: {kind}{default}", option.name);
            assert!(limiters.iter().all(|own| own.contains(&argument)), "{call} lacks {argument}: {limiters:?}");
        }
    }
}

#[test]
fn the_builder_has_a_method_for_each_option_of_a_limiter() {
    let builder = read("core/src/limiter/builder.rs");
    let options = LIMITER_OPTIONS.iter().map(|option| option.declaration);
    for option in options.filter(|option| Host::Rust.type_of(option).is_some()) {
        let method = if option.name == "policies" { "policy" } else { option.name };
        assert!(builder.contains(&format!("fn {method}(")), "no method {method}");
    }
}
