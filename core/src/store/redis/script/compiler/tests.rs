use std::collections::BTreeSet;

use super::*;
use crate::policy::Algorithm;

#[test]
fn names_become_numbers_but_for_those_in_comments() {
    let text = "if algorithm == GCRA then return MY_GCRA, GCRAS end -- GCRA\nlocal CHECK_ALL, b = CHECK, SLIDING_LOG";
    let expected = "if algorithm == 7 then return MY_GCRA, GCRAS end -- GCRA\nlocal CHECK_ALL, b = 1, 3";
    assert_eq!(numbered(text), expected);
}

#[test]
fn the_numbers_of_algorithms_are_those_of_their_tags() {
    let (names, all): (Vec<_>, Vec<_>) =
        stored().iter().zip(Algorithm::ALL).map(|(stored, algorithm)| (stored.name, format!("{algorithm:?}"))).unzip();
    assert_eq!(names, all);
    assert_eq!(stored().len(), Algorithm::ALL.len());
}

#[test]
fn the_script_is_that_of_its_golden_files() {
    for (name, text) in script_files() {
        let path = format!("{}/src/store/redis/script/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        assert!(
            std::fs::read_to_string(&path).unwrap_or_default() == text,
            "{path} differs: `make generate` writes it"
        );
    }
}

#[test]
fn comments_and_indentation_are_no_part_of_the_script() {
    let text = "-- a\nlocal a = 1 -- b\n\n  return '--' .. a -- it's c\n";
    assert_eq!(stripped(text), "local a = 1\nreturn '--' .. a\n");
}

#[test]
#[should_panic(expected = "no section charge in the rule of GCRA")]
fn a_rule_without_a_section_is_said() {
    forms("--[[ algorithms: GCRA ]]\n--[[ advance ]]\n")[0].section("charge");
}

/// Words that stand for fields and numbers in the loops, and the words that sections read and set there.
const LOOP_WORDS: &str = "value first self list_slot numbers place count period x y z now cost hold ends";

/// The names that a text declares: its locals, the variables of its loops, and its functions with their arguments.
fn declared(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().map(|line| line.split("--").next().unwrap_or_default());
    let rest =
        code.flat_map(|line| ["local ", "for ", "function"].map(|word| line.split(word).skip(1)).into_iter().flatten());
    rest.filter_map(|rest| rest.split(['=', ')']).next()?.split(" in ").next())
        .flat_map(|names| names.split(|letter| !is_of_word(letter)))
}

/// The names that sections of a form declare and that mean something else there: a field, a number or a word of the loop.
fn clashes(form: &RuleForm<'_>) -> BTreeSet<String> {
    let own = [form.words("fields"), form.words("numbers")].concat();
    let mut clashes = BTreeSet::new();
    for (section, Section { text, .. }) in form.sections.iter().filter(|(section, _)| **section != "helpers") {
        let others = if section.ends_with("methods") { "first" } else { LOOP_WORDS };
        let names = declared(text).filter(|name| own.contains(name) || others.split(' ').any(|other| other == *name));
        clashes.extend(names.map(|name| format!("{name} in {section} of {}", form.section("algorithms").argument)));
    }
    clashes
}

#[test]
fn a_section_declares_no_name_that_means_something_else_there() {
    let clashes_of = |source: &str| forms(source).iter().flat_map(clashes).collect::<BTreeSet<_>>();
    for (section, text, name) in [
        ("advance", "local gone, units = 1, 2\n", "units"),
        ("charge", "for period = 1, 2 do\nend\n", "period"),
        ("charge", "if cost > 0 then local ends = now end\n", "ends"),
        ("more methods", "local function settled(self, since) end\n", "since"),
        ("methods", "each(function(first) end)\n", "first"),
    ] {
        let head = "--[[ algorithms: GCRA ]]\n--[[ fields: since, units ]]\n--[[ numbers: count, period ]]\n";
        let wrong = format!("{head}--[[ {section} ]]\nlocal level = 1 -- local ends\n{text}");
        assert_eq!(clashes_of(&wrong), BTreeSet::from([format!("{name} in {section} of GCRA")]));
    }
    for rule in RULES {
        assert_eq!(clashes_of(rule), BTreeSet::new());
    }
}

#[test]
fn no_mark_is_left_and_no_table_is_in_a_loop_for_one_limit() {
    assert!(!script().contains("--<"));
    let of_a_rule = LIMITS_OF_A_RULE.map(|(algorithm, count)| limits_of_a_rule(algorithm, count));
    for text in rules_of_loops().iter().map(one_limit).chain(of_a_rule) {
        assert!(!text.contains("value[") && !text.contains("{ unpack_"), "{text}");
    }
}

#[test]
fn no_bare_number_of_an_algorithm_operation_or_grouping_stands_in_a_source() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/redis/script/lua");
    for file in std::fs::read_dir(folder).expect("the folder of the sources") {
        let path = file.expect("a source").path();
        let source = std::fs::read_to_string(&path).expect("a source");
        for line in source.lines().map(|line| line.split("--").next().unwrap_or_default()) {
            for subject in ["algorithm", "operation", "grouping"] {
                for compared in ["==", "~=", "<", ">", "<=", ">="] {
                    let rest = line.split_once(&format!("{subject} {compared} ")).map_or("", |(_, rest)| rest);
                    assert!(!rest.starts_with(|first: char| first.is_ascii_digit()), "{}: {line}", path.display());
                }
            }
            let keyed = line.trim_start().strip_prefix('[').unwrap_or_default();
            assert!(!keyed.starts_with(|first: char| first.is_ascii_digit()), "{}: {line}", path.display());
        }
    }
}
