//! The modules of a crate, read from its sources: the names that each defines, imports and uses, except in tests.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

use super::files;

/// A path in code, or the place of a module in its crate, segment by segment.
pub(crate) type Segments = Vec<String>;

/// One leaf of a `use` declaration. The name of a glob is `*`.
pub(crate) struct Import {
    pub(crate) path: Segments,
    pub(crate) name: String,
}

#[derive(Default)]
pub(crate) struct Module {
    pub(crate) file: String,
    pub(crate) imports: Vec<Import>,
    /// Paths of two segments and more, outside of `use`.
    pub(crate) paths: Vec<Segments>,
    /// Everything that is defined at the level of the module.
    pub(crate) defined: BTreeSet<String>,
    /// The structs, enums, traits, unions and aliases among these.
    pub(crate) types: BTreeSet<String>,
}

pub(crate) struct Crate {
    pub(crate) modules: BTreeMap<Segments, Module>,
}

impl Crate {
    /// Reads `lib.rs` in a folder and every module that it leads to.
    pub(crate) fn read(folder: &str) -> Self {
        let mut found = Self { modules: BTreeMap::new() };
        found.read_file(vec![], format!("{folder}/lib.rs"), folder.to_owned());
        found
    }

    /// `folder` has the files of its children.
    fn read_file(&mut self, place: Segments, file: String, folder: String) {
        let source: TokenStream = files::read(&file).parse().unwrap_or_else(|error| panic!("{file}: {error}"));
        let mut tokens = Vec::new();
        flatten(source, &mut tokens);
        self.read_module(place, &file, &folder, &tokens);
    }

    fn read_module(&mut self, place: Segments, file: &str, folder: &str, tokens: &[Token]) {
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        let mut children = Vec::new();
        let (mut at, mut depth) = (0, 0_usize);
        while at < tokens.len() {
            match &tokens[at..] {
                [Token::Sign('#'), Token::Open(Delimiter::Bracket), ..] => {
                    let end = closing(tokens, at + 1);
                    at = if is_for_tests(&tokens[at + 2..end]) { after_item(tokens, end + 1) } else { end + 1 };
                    continue;
                }
                // A path of visibility names no item.
                [Token::Word(word), Token::Open(Delimiter::Parenthesis), ..] if word == "pub" => {
                    at = closing(tokens, at + 1) + 1;
                    continue;
                }
                [Token::Word(word), next, ..] if word == "use" && *next != Token::Sign('<') => {
                    at = read_use(tokens, at + 1, &mut vec![], &mut module.imports);
                    continue;
                }
                [Token::Word(word), Token::Word(name), Token::Sign(';'), ..] if word == "mod" => {
                    children.push((name.clone(), None));
                }
                [Token::Word(word), Token::Word(name), Token::Open(Delimiter::Brace), ..] if word == "mod" => {
                    let end = closing(tokens, at + 2);
                    children.push((name.clone(), Some(&tokens[at + 3..end])));
                    at = end;
                }
                [Token::Word(word), Token::Word(name), ..] if depth == 0 && is_definition(word) => {
                    module.defined.insert(name.clone());
                    if ["struct", "enum", "trait", "union", "type"].contains(&word.as_str()) {
                        module.types.insert(name.clone());
                    }
                }
                [Token::Word(_), Token::Path, ..] if at == 0 || tokens[at - 1] != Token::Path => {
                    let mut path = Segments::new();
                    while let [Token::Word(word), rest @ ..] = &tokens[at..] {
                        path.push(word.clone());
                        at += 1;
                        match rest {
                            [Token::Path, Token::Word(_), ..] => at += 1,
                            _ => break,
                        }
                    }
                    module.paths.push(path);
                    continue;
                }
                [Token::Open(_), ..] => depth += 1,
                [Token::Close(_), ..] => depth -= 1,
                _ => {}
            }
            at += 1;
        }
        for (name, inline) in children {
            let child: Segments = place.iter().cloned().chain([name.clone()]).collect();
            let inner = format!("{folder}/{name}");
            match inline {
                Some(tokens) => self.read_module(child, file, &inner, tokens),
                None if files::exists(&format!("{inner}.rs")) => self.read_file(child, format!("{inner}.rs"), inner),
                None => self.read_file(child, format!("{inner}/mod.rs"), inner),
            }
        }
        self.modules.insert(place, module);
    }
}

/// Code without comments, values of literals and nesting. A literal is a sign.
#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    /// `::`
    Path,
    Sign(char),
    Open(Delimiter),
    Close(Delimiter),
}

fn flatten(source: TokenStream, tokens: &mut Vec<Token>) {
    let mut first_colon = false;
    for tree in source {
        let was_colon = std::mem::take(&mut first_colon);
        match tree {
            TokenTree::Ident(word) => tokens.push(Token::Word(word.to_string())),
            TokenTree::Literal(_) => tokens.push(Token::Sign('"')),
            TokenTree::Punct(sign) if sign.as_char() == ':' && was_colon => tokens.push(Token::Path),
            TokenTree::Punct(sign) if sign.as_char() == ':' && sign.spacing() == Spacing::Joint => first_colon = true,
            TokenTree::Punct(sign) => tokens.push(Token::Sign(sign.as_char())),
            TokenTree::Group(group) => {
                tokens.push(Token::Open(group.delimiter()));
                flatten(group.stream(), tokens);
                tokens.push(Token::Close(group.delimiter()));
            }
        }
    }
}

/// The place at which a group that opens at `at` closes.
fn closing(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, token) in tokens[at..].iter().enumerate() {
        match token {
            Token::Open(_) => depth += 1,
            Token::Close(_) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + offset;
        }
    }
    unreachable!("every group closes")
}

/// True if an attribute leaves its item to tests.
fn is_for_tests(attribute: &[Token]) -> bool {
    let word = |text: &str| Token::Word(text.to_owned());
    attribute.first() == Some(&word("cfg")) && attribute.contains(&word("test")) && !attribute.contains(&word("not"))
}

/// The place after an item that begins at `at`, perhaps with attributes.
fn after_item(tokens: &[Token], mut at: usize) -> usize {
    while let [Token::Sign('#'), Token::Open(Delimiter::Bracket), ..] = &tokens[at..] {
        at = closing(tokens, at + 1) + 1;
    }
    let is_use = tokens.get(at) == Some(&Token::Word("use".to_owned()));
    while at < tokens.len() {
        match &tokens[at] {
            Token::Sign(';' | ',') => return at + 1,
            Token::Open(Delimiter::Brace) if !is_use => return closing(tokens, at) + 1,
            Token::Open(_) => at = closing(tokens, at),
            Token::Close(_) => return at,
            _ => {}
        }
        at += 1;
    }
    at
}

fn is_definition(word: &str) -> bool {
    ["struct", "enum", "trait", "union", "type", "fn", "const", "static"].contains(&word)
}

/// Reads the tree of a `use` from `at`, and returns the place after it.
fn read_use(tokens: &[Token], mut at: usize, path: &mut Segments, imports: &mut Vec<Import>) -> usize {
    let start = path.len();
    loop {
        match &tokens[at..] {
            [Token::Word(word), Token::Word(name), ..] if word == "as" => {
                imports.push(Import { path: path.clone(), name: name.clone() });
                path.truncate(start);
                at += 1;
            }
            [Token::Word(word), ..] => {
                path.push(word.clone());
                if !matches!(&tokens[at + 1..], [Token::Path, ..] | [Token::Word(_), ..]) {
                    // `use a::{self}` names a.
                    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                        path.pop();
                    }
                    let name = path.last().expect("a segment").clone();
                    imports.push(Import { path: path.clone(), name });
                    path.truncate(start);
                }
            }
            [Token::Sign('*'), ..] => {
                imports.push(Import { path: path.clone(), name: "*".to_owned() });
                path.truncate(start);
            }
            [Token::Open(_), ..] => {
                let end = closing(tokens, at);
                let mut inner = at + 1;
                while inner < end {
                    inner = read_use(tokens, inner, path, imports);
                }
                path.truncate(start);
                at = end;
            }
            [Token::Sign(',' | ';'), ..] => return at + 1,
            [Token::Close(_), ..] => return at,
            _ => {}
        }
        at += 1;
    }
}
