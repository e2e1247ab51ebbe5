//! A reload takes a changed policy file as a whole or not at all, and keeps everything that code relies on.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::{Builder, Error, ErrorKind, Limiter, Policy};
use tidegate_tests::wait::wait_until;

/// A policy file that is removed at the end.
struct PolicyText(PathBuf);

impl PolicyText {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-reload-{name}-{}.yaml", std::process::id()));
        std::fs::write(&path, text).expect("a file");
        Self(path)
    }

    /// Replaces the file at once, because a busy machine may leave one that is half written for longer than a look.
    fn write(&self, text: &str) {
        let new = self.0.with_extension("new");
        std::fs::write(&new, text).expect("a file");
        std::fs::rename(&new, &self.0).expect("a file");
    }

    fn builder(&self) -> Builder {
        Builder::from_file(&self.0).expect("a policy file")
    }

    fn limiter(&self) -> Limiter {
        self.builder().build().expect("a limiter")
    }

    fn name(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for PolicyText {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

/// The limits of these policies, without those that are unknown.
fn limits(limiter: &Limiter, names: &[&str]) -> Vec<String> {
    names.iter().filter_map(|name| limiter.policy(*name).ok()).map(|policy| policy.to_string()).collect()
}

fn refused(limiter: &Limiter, kind: ErrorKind, parts: &[&str]) -> Error {
    let error = limiter.reload().expect_err("the reload is refused");
    assert_eq!(error.kind(), kind, "{error}");
    for part in parts {
        assert!(error.message().contains(part), "{error} does not say {part}");
    }
    error
}

#[test]
fn policies_given_in_code_stay() {
    let file = PolicyText::new("code", "policies: {login: 20/minute}");
    let limiter = file.builder().policy("mail", "3/minute").expect("a name").build().expect("a limiter");
    assert!(limiter.check_n("mail", "k", 2).expect("a decision").allowed());
    for (text, login) in [("policies: {login: 20/minute}", "20/minute"), ("policies: {login: 5/hour}", "5/hour")] {
        file.write(text);
        limiter.reload().expect("a reload");
        let shown = |notation: &str| Policy::parse(notation).expect("a notation").to_string();
        assert_eq!(limits(&limiter, &["login", "mail"]), [shown(login), shown("3/minute")]);
    }
    assert_eq!(limiter.check("mail", "k").expect("a decision").remaining(), 0, "what was used stays used");
}

#[test]
fn a_name_in_code_and_in_the_file_is_an_error() {
    let file = PolicyText::new("twice", "policies:\n  login: 20/minute\n");
    let error = file.builder().policy("login", "3/minute").expect_err("the name is taken");
    assert_eq!(error.kind(), ErrorKind::PolicyInvalid);
    for part in ["\"login\"", &file.name(), "in code"] {
        assert!(error.message().contains(part), "{error}");
    }
    let limiter = file.builder().policy("mail", "3/minute").expect("a name").build().expect("a limiter");
    file.write("policies:\n  login: 9/minute\n  mail: 4/minute\n");
    refused(&limiter, ErrorKind::PolicyInvalid, &["\"mail\"", &format!("{}:3", file.name()), "in code"]);
    assert_eq!(limits(&limiter, &["login"]), [Policy::parse("20/minute").expect("a notation").to_string()]);
}

#[test]
fn a_changed_store_refuses_the_whole_file() {
    let file = PolicyText::new("store", "store: memory://\npolicies: {login: 20/minute}");
    let limiter = file.limiter();
    file.write("store: redis://user:hunter2@127.0.0.1:1/0\npolicies: {login: 5/minute}");
    let error =
        refused(&limiter, ErrorKind::ConfigInvalid, &[&file.name(), "store", "memory://", "redis://127.0.0.1:1/0"]);
    assert!(!error.message().contains("hunter2"), "{error}");
    assert_eq!(limits(&limiter, &["login"]), [Policy::parse("20/minute").expect("a notation").to_string()]);
    // A file without a store means memory.
    file.write("policies: {login: 5/minute}");
    limiter.reload().expect("the same store");
    assert_eq!(limits(&limiter, &["login"]), [Policy::parse("5/minute").expect("a notation").to_string()]);
    file.write("store: \"memory://?max_keys=5\"\npolicies: {login: 6/minute}");
    refused(&limiter, ErrorKind::ConfigInvalid, &[&file.name(), "store"]);
    // Only a secret or an option differs. The message shows neither.
    let file = PolicyText::new("secret", "store: redis://:one@127.0.0.1:1/0\npolicies: {login: 20/minute}");
    let limiter = file.limiter();
    file.write("store: redis://:two@127.0.0.1:1/0\npolicies: {login: 20/minute}");
    let error = refused(&limiter, ErrorKind::ConfigInvalid, &[&file.name(), "store"]);
    assert!(!error.message().contains("one@") && !error.message().contains("two@"), "{error}");
}

#[test]
fn a_changed_prefix_refuses_the_whole_file() {
    let file = PolicyText::new("prefix", "prefix: shop\npolicies: {login: 20/minute}");
    let (limiter, given) = (file.limiter(), file.builder().prefix("own").build().expect("a limiter"));
    for (now, said) in [("prefix: other\n", "\"shop\" to \"other\""), ("", "\"shop\" to \"tg\"")] {
        file.write(&format!("{now}policies: {{login: 5/minute}}"));
        refused(&limiter, ErrorKind::ConfigInvalid, &[&file.name(), "prefix", said]);
        assert_eq!(limits(&limiter, &["login"]), [Policy::parse("20/minute").expect("a notation").to_string()]);
        given.reload().expect("the prefix is that of the code");
    }
    file.write("prefix: shop\npolicies: {login: 5/minute}");
    limiter.reload().expect("the same prefix");
    assert_eq!(limits(&limiter, &["login"]), [Policy::parse("5/minute").expect("a notation").to_string()]);
}

#[test]
fn the_store_of_the_file_does_not_matter_where_code_gives_one() {
    let file = PolicyText::new("given", "store: redis://127.0.0.1:1\npolicies: {login: 20/minute}");
    let limiter = file.builder().store("memory://").build().expect("a limiter");
    file.write("store: redis://127.0.0.1:2\npolicies: {login: 5/minute}");
    limiter.reload().expect("a reload");
    assert_eq!(limits(&limiter, &["login"]), [Policy::parse("5/minute").expect("a notation").to_string()]);
}

#[test]
fn a_policy_that_is_used_stays() {
    let file = PolicyText::new("used", "policies: {login: 20/minute, mail: 3/minute, rest: 1/s}");
    let limiter = file.limiter();
    let login = limiter.use_policy("login", "the function sign_in").expect("a policy");
    let again = limiter.use_policy("login", "POST /login").expect("a policy");
    let mail = limiter.to_async().use_policy("mail", "the function send").expect("a policy");
    let notation = limiter.use_policy("9/minute", "the function other").expect("a notation");
    assert_eq!(limiter.use_policy("lgoin", "x").expect_err("unknown").kind(), ErrorKind::PolicyUnknown);
    file.write("policies: {rest: 2/s}");
    let parts = [&*file.name(), "\"login\"", "sign_in", "POST /login", "\"mail\"", "the function send"];
    let error = refused(&limiter, ErrorKind::ConfigInvalid, &parts);
    assert!(!error.message().contains("\"rest\"") && !error.message().contains("9/minute"), "{error}");
    let shown = |notation: &str| Policy::parse(notation).expect("a notation").to_string();
    assert_eq!(limits(&limiter, &["login", "rest"]), [shown("20/minute"), shown("1/s")], "nothing has changed");
    drop(mail);
    drop(login);
    let error = refused(&limiter, ErrorKind::ConfigInvalid, &["\"login\"", "POST /login"]);
    assert!(!error.message().contains("sign_in") && !error.message().contains("mail"), "{error}");
    drop(again);
    limiter.reload().expect("no user is left");
    assert_eq!(limits(&limiter, &["login", "rest"]), [shown("2/s")]);
    drop(notation);
}

#[test]
fn a_generation_says_that_policies_were_reloaded() {
    let file = PolicyText::new("generation", "policies: {login: 20/minute}");
    let limiter = file.limiter();
    let before = limiter.policy_generation();
    file.write("policies: {login: 5 per fortnight}");
    refused(&limiter, ErrorKind::PolicyInvalid, &[]);
    assert_eq!(limiter.policy_generation(), before);
    file.write("policies: {login: concurrency 4}");
    limiter.reload().expect("a reload");
    assert_ne!(limiter.policy_generation(), before);
    assert_eq!(limiter.to_async().policy_generation(), limiter.policy_generation());
}

const PATIENCE: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_millis(5);

/// A limiter that looks at its file, and its warnings.
fn watching(path: &std::path::Path) -> (Limiter, Arc<Mutex<Vec<String>>>) {
    let heard = Arc::<Mutex<Vec<String>>>::default();
    let lines = Arc::clone(&heard);
    let listener = move |line: &str| lines.lock().expect("lines").push(line.to_owned());
    let builder = Builder::from_file(path).expect("a policy file").on_warning(Arc::new(listener)).watch(INTERVAL);
    (builder.build().expect("a limiter"), heard)
}

fn wait_for_login(limiter: &Limiter, notation: &str) {
    let expected = Policy::parse(notation).expect("a notation").to_string();
    wait_until(PATIENCE, notation, || limits(limiter, &["login"]) == [expected.clone()]);
}

/// The threads of this process that look at files.
#[cfg(target_os = "linux")]
fn watching_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    tasks
        .filter(|task| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "tidegate-watch")
        })
        .count()
}

#[test]
fn a_watched_file_is_taken_however_it_was_changed() {
    let file = PolicyText::new("watched", "policies: {login: 1/minute}");
    let (limiter, heard) = watching(&file.0);
    // In place, with the same length and the same time of change.
    let modified = std::fs::metadata(&file.0).and_then(|data| data.modified()).expect("a time");
    file.write("policies: {login: 2/minute}");
    let opened = std::fs::File::options().write(true).open(&file.0).expect("the file");
    opened.set_modified(modified).expect("a time is set");
    wait_for_login(&limiter, "2/minute");
    // Another file takes its name.
    let other = PolicyText::new("watched-new", "policies: {login: 3/minute}");
    std::fs::rename(&other.0, &file.0).expect("a rename");
    wait_for_login(&limiter, "3/minute");
    // It is gone for a while.
    std::fs::remove_file(&file.0).expect("a removal");
    wait_until(PATIENCE, "the loss is told", || heard.lock().expect("lines").len() == 1);
    file.write("policies: {login: 4/minute}");
    wait_for_login(&limiter, "4/minute");
    assert_eq!((limiter.counters().reloads, limiter.counters().reloads_refused), (3, 1));
}

#[cfg(unix)]
#[test]
fn a_watched_link_may_lead_elsewhere_as_in_a_config_map() {
    use std::os::unix::fs::symlink;

    let folder = std::env::temp_dir().join(format!("tidegate-map-{}", std::process::id()));
    for (name, notation) in [("one", "1/minute"), ("two", "2/minute")] {
        std::fs::create_dir_all(folder.join(name)).expect("a folder");
        let text = format!("policies: {{login: {notation}}}");
        std::fs::write(folder.join(name).join("tidegate.yaml"), text).expect("a file");
    }
    symlink("one", folder.join("..data")).expect("a link");
    symlink("..data/tidegate.yaml", folder.join("tidegate.yaml")).expect("a link");
    let (limiter, _) = watching(&folder.join("tidegate.yaml"));
    symlink("two", folder.join("..data_tmp")).expect("a link");
    std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).expect("a swap");
    wait_for_login(&limiter, "2/minute");
    std::fs::remove_dir_all(folder).expect("a removal");
}

#[test]
fn a_broken_watched_file_is_told_once_and_changes_nothing() {
    let file = PolicyText::new("broken", "policies: {login: 1/minute}");
    let (limiter, heard) = watching(&file.0);
    let told = |count: usize| wait_until(PATIENCE, "it is told", || heard.lock().expect("lines").len() >= count);
    file.write("policies: {login: 1 per fortnight}");
    told(1);
    file.write("policies: [");
    told(2);
    // Many looks later there is no other line.
    std::thread::sleep(20 * INTERVAL);
    let lines = heard.lock().expect("lines").clone();
    assert_eq!((lines.len(), limiter.counters().reloads_refused), (2, 2), "{lines:?}");
    for part in ["is not taken", "stay in force", &format!("{}:1", file.name())] {
        assert!(lines[0].contains(part), "{} does not have {part}", lines[0]);
    }
    assert_eq!(limits(&limiter, &["login"]), [Policy::parse("1/minute").expect("a notation").to_string()]);
    file.write("policies: {login: 5/minute}");
    wait_for_login(&limiter, "5/minute");
}

#[cfg(target_os = "linux")]
#[test]
fn one_thread_looks_for_all_limiters_and_ends_with_them() {
    let files = ["a", "b", "c"].map(|name| PolicyText::new(name, "policies: {login: 1/minute}"));
    let limiters = files.each_ref().map(|file| watching(&file.0).0);
    wait_until(PATIENCE, "a thread looks", || watching_threads() == 1);
    files[2].write("policies: {login: 2/minute}");
    wait_for_login(&limiters[2], "2/minute");
    let [first, second, third] = limiters;
    drop(first);
    second.close();
    files[2].write("policies: {login: 3/minute}");
    wait_for_login(&third, "3/minute");
    assert_eq!(watching_threads(), 1);
    drop(third);
    wait_until(PATIENCE, "the thread ends", || watching_threads() == 0);
}

/// The test needs no fork, because it tells the limiter of one.
#[test]
fn a_child_looks_from_its_first_call_on() {
    let file = PolicyText::new("forked", "policies: {login: 1/minute}");
    let (limiter, _) = watching(&file.0);
    tidegate::after_fork_in_child();
    limiter.check("login", "k").expect("a decision");
    file.write("policies: {login: 2/minute}");
    wait_for_login(&limiter, "2/minute");
}

#[test]
fn a_watch_needs_a_file_and_a_usable_interval() {
    let error = Limiter::builder().watch(INTERVAL).build().expect_err("there is no file");
    assert!(error.kind() == ErrorKind::ConfigInvalid && error.message().contains("from_file"), "{error}");
    let file = PolicyText::new("range", "policies: {login: 1/minute}");
    let error = file.builder().watch(Duration::from_secs(86_401)).build().expect_err("too long");
    assert!(error.kind() == ErrorKind::ConfigInvalid && error.message().contains("1 day"), "{error}");
    file.builder().watch(Duration::ZERO).build().expect("a limiter that never looks");
}
