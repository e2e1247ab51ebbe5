//! No file makes the parsers panic, or take long.

use proptest::prelude::*;

use super::*;

#[test]
fn aliases_repeat_and_bombs_do_not_explode() {
    let file = yaml("policies:\n  a: &x {limits: [&l 5/s], journal: 3}\n  b: *x\n  c: [*l, 6/m]\n");
    assert_eq!(file.policies()[0].options(), file.policies()[1].options());
    assert_eq!(file.policies()[2].to_string(), "5/s; 6/minute");
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let alias = format!("*a{}, ", level - 1);
        bomb += &format!("a{level}: &a{level} [{}]\n", alias.repeat(10).trim_end_matches(", "));
    }
    assert!(read(&bomb, Format::Yaml).unwrap_err().message().contains("values"));
    let deep = (1..200).fold("a0: &a0 []\n".to_owned(), |text, n| text + &format!("a{n}: &a{n} [*a{}]\n", n - 1));
    assert!(read(&deep, Format::Yaml).unwrap_err().message().contains("deeper"));
}

#[test]
fn huge_files_are_refused_or_read_and_never_panic() {
    const SIZE: usize = 1 << 18;
    for format in Format::ALL {
        for piece in [
            "[",
            "{",
            "{a: ",
            "- ",
            "? ",
            "a: ",
            "\"",
            "'",
            "[[a]]\n",
            "a.",
            "a=1\n",
            "[a.b]\n",
            "&a ",
            "!!a ",
            "9",
            "\\",
            "\u{1F600}",
            "{\"a\":",
            "x\n",
            "\r",
            "|\n",
            "# ",
        ] {
            let _ = read(&piece.repeat(SIZE / piece.len()), format);
        }
        assert!(read(&" ".repeat(MAX_FILE_SIZE + 1), format).unwrap_err().message().contains("larger"));
    }
    let many: String = (0..20_000).map(|n| format!("\"p{n}\":\"5/s\",")).collect();
    let many = format!("{{\"policies\":{{{}}}}}", many.trim_end_matches(','));
    for format in [Format::Json, Format::Yaml] {
        assert_eq!(read(&many, format).unwrap().policies().len(), 20_000);
    }
}

fn pieces() -> impl Strategy<Value = String> {
    let pieces = vec![
        "policies",
        ":",
        ": ",
        "\n",
        "\n  ",
        "\n    - ",
        "{",
        "}",
        "[",
        "]",
        ",",
        "\"",
        "'",
        "5/s",
        "limits",
        "count",
        "period",
        "600",
        "&a ",
        "*a",
        "!!str ",
        "|",
        ">",
        "#",
        "---",
        "...",
        "${",
        "}",
        "X:-",
        "=",
        "[[",
        "]]",
        "a.b",
        "store",
        "\\u00e9",
        "é",
        "\u{0}",
        "\t",
        "? ",
        "- ",
        "null",
        "-1",
        "1e400",
        "0x",
        "\r\n",
        "%TAG ! x",
        "%YAML 1.2",
        "<<",
        "'''",
        "\"\"\"",
        "\u{feff}",
    ];
    proptest::collection::vec(prop::sample::select(pieces), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_text_panics(text in pieces(), anything in "\\PC{0,60}|[\\x00-\\x7f]{0,60}") {
        for format in Format::ALL {
            for text in [&text, &anything] {
                let _ = read(text, format);
            }
        }
    }

    #[test]
    fn no_damaged_file_panics(at in 0_usize..900, take in 0_usize..40, put in pieces()) {
        for (text, format) in [(CONTRACT, Format::Yaml), (CONTRACT_TOML, Format::Toml), (CONTRACT_JSON, Format::Json)] {
            let mut text: Vec<char> = text.chars().collect();
            let from = at.min(text.len());
            let to = (from + take).min(text.len());
            text.splice(from..to, put.chars());
            let _ = read(&text.iter().collect::<String>(), format);
        }
    }
}
