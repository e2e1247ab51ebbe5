//! Recipes name every file that really names an algorithm, an option, a framework or a metric, so that none can be short again.

use super::{Violations, files, hold};

const PAGES: &str = "docs/contributing/recipes";
const PRODUCT: [&str; 7] = [
    "core/src",
    "simulate/src",
    "cli/src",
    "bindings-python/src",
    "bindings-python/python",
    "bindings-node/src",
    "bindings-node/lib",
];
/// Lines of a recipe, without its title.
const LONGEST: usize = 10;

/// A page, an example of its subject, and the product's spelling of it: in lower case, without `-` and `_`.
const EXAMPLES: [(&str, &str, &str); 6] = [
    ("algorithm", "sliding_counter", "slidingcounter"),
    ("policy-option", "count_denied", "countdenied"),
    ("limiter-option", "max_waiting_per_key", "maxwaitingperkey"),
    ("node-framework", "koa", "koa"),
    ("web-framework-in-python", "flask", "flask"),
    ("metric", "near_limit", "tidegatenearlimittotal"),
];
/// Files outside of the product: tests, and code that only tests and benchmarks call.
const NOT_PRODUCT: [&str; 3] = ["/tests", "simulation", "/bench/"];
/// Files that use an example and need no change for another one.
const USES: [&str; 2] = ["bindings-python/python/tidegate/limits.py", "bindings-python/python/tidegate/quart.py"];

fn named_in(page: &str, example: &str) -> Vec<String> {
    let text = files::read(&format!("{PAGES}/{page}.md"));
    let paths = text.split('`').skip(1).step_by(2).filter(|name| name.contains('/'));
    paths.map(|name| name.replace("/x.", &format!("/{example}.")).replace("/x/", &format!("/{example}/"))).collect()
}

#[test]
fn a_recipe_names_the_files_that_name_its_example() {
    let mut found = Violations::new();
    let endings = [".rs", ".lua", ".py", ".pyi", ".ts"];
    let product: Vec<String> = PRODUCT.iter().flat_map(|folder| files::under(folder, &endings)).collect();
    for (page, example, spelled) in EXAMPLES {
        let named = named_in(page, example);
        let mut count = 0;
        for file in product.iter().filter(|file| !NOT_PRODUCT.iter().any(|part| file.contains(part))) {
            let text = files::read(file).to_lowercase().replace(['-', '_'], "");
            if text.contains(spelled) && !USES.contains(&file.as_str()) {
                count += 1;
                let folder = |name: &String| name.ends_with(&format!("/{example}/")) && file.starts_with(name);
                if !named.iter().any(|name| name == file || folder(name)) {
                    found.entry(format!("{page} is short of files")).or_default().push(file.clone());
                }
            }
        }
        assert!(count > 0, "nothing is called {example}");
    }
    hold("recipes are complete", found);
}

#[test]
fn a_recipe_is_short_and_listed() {
    let mut found = Violations::new();
    let index = files::read("CONTRIBUTING.md");
    for page in files::under(PAGES, &[".md"]) {
        if files::read(&page).lines().skip(2).count() > LONGEST {
            found.insert(format!("{page} has more than {LONGEST} lines"), vec![]);
        }
        if !index.contains(&format!("({page})")) {
            found.insert(format!("{page} is not in CONTRIBUTING.md"), vec![]);
        }
    }
    hold("recipes are short", found);
}
