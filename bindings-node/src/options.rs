//! The options that the core declares, for the checks of TypeScript.

use std::collections::HashMap;

use napi_derive::napi;
use tidegate::host::{
    ArgumentKind, CALL_OPTIONS, LAYER_OPTIONS, LIMIT_OPTIONS, LIMITER_OPTIONS, OptionDeclaration, POLICY_OPTIONS,
    PolicyOption,
};

use crate::error_value::node_name;

/// An option of a policy, a limiter, a call or a web layer.
#[napi(object)]
pub struct DeclaredOption {
    /// Its name in JavaScript.
    pub name: String,
    /// The kind of its value: a name of the core's `ArgumentKind`.
    pub kind: String,
    /// The result of `typeof` for its values, if no more is checked here.
    pub types: Vec<String>,
    /// The words of a choice.
    pub words: Vec<String>,
}

fn declared(option: OptionDeclaration) -> Option<DeclaredOption> {
    let (types, words): (&[&str], &[&str]) = match option.kind {
        ArgumentKind::WarningListener | ArgumentKind::BatchSize => return None,
        ArgumentKind::Flag => (&["boolean"], &[]),
        ArgumentKind::Text | ArgumentKind::OnStoreError => (&["string"], &[]),
        ArgumentKind::Duration | ArgumentKind::Count => (&["number"], &[]),
        ArgumentKind::Overrides => (&["object"], &[]),
        ArgumentKind::Periods => (&["number", "string", "list"], &[]),
        ArgumentKind::Period | ArgumentKind::Lease => (&["number", "string"], &[]),
        ArgumentKind::Priorities => (&["object"], &[]),
        ArgumentKind::Choice(words) => (&[], words),
        _ => (&[], &[]),
    };
    let texts = |all: &[&str]| all.iter().map(ToString::to_string).collect();
    let kind = format!("{:?}", option.kind);
    let name = node_name(option.name);
    let name = if option.kind == ArgumentKind::Wait && !name.ends_with("Ms") { name + "Ms" } else { name };
    Some(DeclaredOption { name, kind, types: texts(types), words: texts(words) })
}

/// Every option, by the thing that has it.
#[napi(catch_unwind)]
pub fn declared_options() -> HashMap<String, Vec<DeclaredOption>> {
    let several = |options: &[OptionDeclaration]| options.iter().copied().filter_map(declared).collect();
    let mut all: HashMap<String, Vec<DeclaredOption>> =
        CALL_OPTIONS.iter().map(|(call, options)| (node_name(call), several(options))).collect();
    let policy = POLICY_OPTIONS.iter().map(PolicyOption::declaration).filter_map(declared);
    let limiter = LIMITER_OPTIONS.iter().filter_map(|option| declared(option.declaration));
    all.extend([
        ("policy".to_owned(), policy.collect()),
        ("limiter".to_owned(), limiter.collect()),
        ("layer".to_owned(), several(LAYER_OPTIONS)),
        ("limit".to_owned(), several(LIMIT_OPTIONS)),
    ]);
    all
}
