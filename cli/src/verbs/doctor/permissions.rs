//! The permissions of the store URL's user, from `ACL DRYRUN` if the user may run it. Otherwise doctor tries harmless
//! commands on a key that is a text for two seconds. Redis checks a permission before it refuses the type of the key.

use redis::Value;
use tidegate::host::ServerConnection;
use tidegate::{Algorithm, Error, Policy};

use super::finding::Finding;
use crate::reply::text;

/// The commands of every check.
const ALWAYS: [&str; 7] = ["evalsha", "eval", "get", "set", "del", "time", "ping"];
/// The commands of policies with a `sliding-log`, and with a journal.
const LOG: [&str; 4] = ["hget", "hset", "hdel", "pexpire"];
const JOURNAL: [&str; 5] = ["lpush", "lrem", "ltrim", "lrange", "pexpire"];
/// The commands of overrides of single keys.
const OVERRIDES: [&str; 9] = ["hset", "hdel", "hvals", "hgetall", "hlen", "hexists", "pexpire", "pttl", "persist"];
/// The commands of a cluster: to find its nodes, and to follow a slot that moves.
pub(super) const CLUSTER: [&str; 2] = ["cluster|slots", "asking"];

/// The policies and the store that need the commands.
pub(super) struct Needs<'a> {
    pub(super) prefix: &'a str,
    /// The policies of the file, if one was given.
    pub(super) policies: Option<&'a [Policy]>,
    /// The user that the URL names.
    pub(super) user: Option<&'a str>,
    pub(super) is_cluster: bool,
    /// True if the store has several servers.
    pub(super) has_several: bool,
    pub(super) reads_replicas: bool,
}

impl Needs<'_> {
    fn uses_log(&self) -> bool {
        let has_log = |policy: &Policy| policy.limits().iter().any(|limit| limit.algorithm() == Algorithm::SlidingLog);
        self.policies.is_some_and(|policies| policies.iter().any(has_log))
    }

    fn uses_journal(&self) -> bool {
        self.policies.is_some_and(|policies| policies.iter().any(|policy| policy.options().journal > 0))
    }

    /// The commands without which calls fail, and those that only some policies or calls need.
    fn commands(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let mut needed = ALWAYS.to_vec();
        let mut useful = Vec::new();
        for (used, commands) in [(self.uses_log(), &LOG[..]), (self.uses_journal(), &JOURNAL)] {
            (if used { &mut needed } else { &mut useful }).extend(commands);
        }
        if self.is_cluster {
            needed.extend(CLUSTER);
        }
        if self.reads_replicas && self.is_cluster {
            needed.push("readonly");
        }
        useful.extend(OVERRIDES);
        useful.push("info");
        useful.sort_unstable();
        useful.dedup();
        useful.retain(|command| !needed.contains(command));
        (needed, useful)
    }
}

/// The permission of the user for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Permission {
    Granted,
    /// The user may not run the command.
    Missing,
    /// The user may not use keys under the prefix.
    KeyMissing,
}

pub(super) fn examine(connection: &mut ServerConnection, needs: &Needs<'_>) -> Result<Vec<Finding>, Error> {
    let (needed, useful) = needs.commands();
    let all: Vec<&str> = needed.iter().chain(&useful).copied().collect();
    let whoami = connection.ask(&["ACL", "WHOAMI"])?;
    // The name of the user stands in a line to paste.
    let is_word = |user: &&str| !user.is_empty() && user.chars().all(|c| !c.is_control() && !c.is_whitespace());
    let user = text(&whoami).filter(is_word).or(needs.user).unwrap_or("default").to_owned();
    let key = format!("{}doctor", needs.prefix);
    let dry = text(&connection.ask(&["ACL", "DRYRUN", &user, "PING"])?) == Some("OK");
    let permissions = if dry { dry_run(connection, &user, &all, &key)? } else { tried(connection, &all, &key)? };
    let of = |commands: &[&'static str]| -> Vec<&'static str> {
        let missing = |command: &&&str| {
            all.iter().zip(&permissions).any(|(one, permission)| one == *command && *permission == Permission::Missing)
        };
        commands.iter().filter(missing).copied().collect()
    };
    let lacks_keys = permissions.contains(&Permission::KeyMissing);
    Ok(findings(&user, needs, &of(&needed), &of(&useful), lacks_keys))
}

/// The line to paste that lets a user use keys and run commands.
pub(super) fn line_for(user: &str, keys: Option<&str>, commands: &[&str]) -> String {
    let rules = keys.map(str::to_owned).into_iter().chain(commands.iter().map(|command| format!("+{command}")));
    format!("ACL SETUSER {user} {}", rules.collect::<Vec<_>>().join(" "))
}

fn findings(user: &str, needs: &Needs<'_>, missing: &[&str], useful: &[&str], lacks_keys: bool) -> Vec<Finding> {
    let keys = format!("~{}*", needs.prefix);
    let mut findings = Vec::new();
    if !missing.is_empty() || lacks_keys {
        let mut lacks = Vec::new();
        if !missing.is_empty() {
            lacks.push(format!("may not run {}", missing.join(", ")));
        }
        if lacks_keys {
            lacks.push(format!("may not use keys that begin with {}", needs.prefix));
        }
        let message = format!("the user {user} {}: checks fail", lacks.join(" and "));
        findings.push(Finding::problem("permissions", message).advice(line_for(
            user,
            lacks_keys.then_some(&*keys),
            missing,
        )));
    } else {
        findings.push(Finding::ok("permissions", format!("the user {user} may run what checks need")));
    }
    let lists = [
        (&LOG[..], "policies with a sliding-log"),
        (&JOURNAL[..], "policies with a journal"),
        (&OVERRIDES[..], "overrides of single keys"),
        (&["info"], "doctor, and the warning about eviction"),
    ];
    for (commands, what) in lists {
        let lacking: Vec<&str> = commands.iter().filter(|command| useful.contains(command)).copied().collect();
        if !lacking.is_empty() {
            let message = format!("{what} would also need {}", lacking.join(", "));
            findings.push(Finding::note("permissions", message).advice(line_for(user, None, &lacking)));
        }
    }
    findings
}

/// The words of a harmless call.
fn call<'a>(command: &'a str, key: &'a str) -> Vec<&'a str> {
    match command {
        "evalsha" => vec!["EVALSHA", "0000000000000000000000000000000000000000", "1", key],
        "eval" => vec!["EVAL", "return 0", "1", key],
        "get" => vec!["GET", key],
        "set" => vec!["SET", key, "doctor", "PX", "2000"],
        "del" => vec!["DEL", key],
        "hget" => vec!["HGET", key, "f"],
        "hset" => vec!["HSET", key, "f", "v"],
        "hdel" => vec!["HDEL", key, "f"],
        "lpush" => vec!["LPUSH", key, "v"],
        "lrem" => vec!["LREM", key, "1", "v"],
        "ltrim" => vec!["LTRIM", key, "0", "1"],
        "lrange" => vec!["LRANGE", key, "0", "1"],
        "pexpire" => vec!["PEXPIRE", key, "2000"],
        "hvals" | "hgetall" | "hlen" | "pttl" | "persist" => vec![command, key],
        "hexists" => vec!["HEXISTS", key, "f"],
        "cluster|slots" => vec!["CLUSTER", "SLOTS"],
        "readonly" => vec!["READONLY"],
        "info" => vec!["INFO", "server"],
        other => vec![other],
    }
}

fn dry_run(
    connection: &mut ServerConnection,
    user: &str,
    commands: &[&str],
    key: &str,
) -> Result<Vec<Permission>, Error> {
    let mut permissions = Vec::new();
    for command in commands {
        let words: Vec<&str> = ["ACL", "DRYRUN", user].into_iter().chain(call(command, key)).collect();
        let reply = connection.ask(&words)?;
        permissions.push(match text(&reply) {
            Some("OK") => Permission::Granted,
            Some(refusal) => meaning(refusal),
            None => Permission::Granted,
        });
    }
    Ok(permissions)
}

/// Tries the commands. SET comes before the others, so that the key is a text while they are tried, and DEL comes last.
/// PERSIST comes even before SET, because it would keep that text.
fn tried(connection: &mut ServerConnection, commands: &[&str], key: &str) -> Result<Vec<Permission>, Error> {
    let order = |command: &&str| match *command {
        "persist" => 0,
        "set" => 1,
        "del" => 3,
        _ => 2,
    };
    let mut sorted: Vec<&str> = commands.to_vec();
    sorted.sort_by_key(order);
    let mut found = Vec::new();
    let mut is_text = false;
    for command in sorted {
        // Without the text, these commands would leave a key behind.
        if ["hset", "lpush"].contains(&command) && !is_text {
            continue;
        }
        let reply = connection.ask(&call(command, key))?;
        is_text |= command == "set" && matches!(reply, Value::Okay);
        found.push((command, permission(&reply)));
    }
    let of = |command: &str| found.iter().find(|(one, _)| *one == command).map(|(_, found)| *found);
    // A command that was not tried has the permission of its sibling.
    let sibling = |command: &str| if command == "hset" { "hdel" } else { "ltrim" };
    let known = |command: &&str| of(command).or_else(|| of(sibling(command))).unwrap_or(Permission::Missing);
    Ok(commands.iter().map(known).collect())
}

fn permission(reply: &Value) -> Permission {
    match reply {
        Value::ServerError(error) if error.code() == "NOPERM" => meaning(error.details().unwrap_or_default()),
        _ => Permission::Granted,
    }
}

/// Redis 7 names the command or the key. Redis 6.2 writes "one of the keys used as arguments".
fn meaning(refusal: &str) -> Permission {
    let is_key = refusal.contains("access a key") || refusal.contains("keys used") || refusal.contains("' key");
    if is_key { Permission::KeyMissing } else { Permission::Missing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_commands_and_of_keys_are_told_apart() {
        for (refusal, expected) in [
            ("User app has no permissions to run the 'get' command", Permission::Missing),
            ("this user has no permissions to run the 'get' command or its subcommand", Permission::Missing),
            ("No permissions to access a key", Permission::KeyMissing),
            ("this user has no permissions to access one of the keys used as arguments", Permission::KeyMissing),
            ("User app has no permissions to access the 'tgdoctor' key", Permission::KeyMissing),
        ] {
            assert_eq!(meaning(refusal), expected, "{refusal}");
        }
    }

    #[test]
    fn the_line_to_paste_grants_what_is_missing() {
        let needs = Needs {
            prefix: "tg",
            policies: None,
            user: None,
            is_cluster: false,
            has_several: false,
            reads_replicas: false,
        };
        let found = findings("app", &needs, &["set", "eval"], &["lpush"], true);
        assert_eq!(found[0].advice.as_deref(), Some("ACL SETUSER app ~tg* +set +eval"));
        assert_eq!(found[1].advice.as_deref(), Some("ACL SETUSER app +lpush"));
    }
}
