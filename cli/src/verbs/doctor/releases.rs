//! Finds keys that two releases count with different limits.

use std::collections::BTreeMap;

use redis::Value;
use tidegate::Error;
use tidegate::host::{self, ServerConnection};

use super::finding::Finding;

/// The number of keys after which the examination of a server ends.
const SAMPLE: usize = 500;

/// Looks at the values of some keys.
pub(super) fn examine(connection: &mut ServerConnection, prefix: &str) -> Result<Option<Finding>, Error> {
    let mut cursor = b"0".to_vec();
    let mut sampled = 0;
    let (mut found, mut counts) = (BTreeMap::<String, usize>::new(), 0);
    loop {
        let pattern = host::pattern_of_keys(prefix);
        let scan = [b"SCAN", &*cursor, b"MATCH", &*pattern, b"COUNT", b"100"];
        let Some((next, keys)) = host::scanned_keys(connection.ask(&scan)?) else {
            let message = "it is not known if two releases count the same keys: the user may not run SCAN";
            return Ok(Some(Finding::note("releases", message).advice("run doctor with a user that may (+scan)")));
        };
        for key in keys {
            sampled += 1;
            let Value::BulkString(value) = connection.ask(&[b"GET", &*key])? else { continue };
            let Some((own, others)) = host::stored_limits(&value).filter(|(_, others)| !others.is_empty()) else {
                continue;
            };
            counts += 1;
            *found.entry(format!("{} beside {}", own.join("; "), others.join("; "))).or_default() += 1;
        }
        cursor = next;
        if cursor == b"0" || sampled >= SAMPLE {
            break;
        }
    }
    let Some((limits, _)) = found.into_iter().max_by_key(|(_, count)| *count) else { return Ok(None) };
    Ok(Some(
        Finding::note("releases", format!("{counts} of {sampled} keys are counted by two releases: {limits}")).advice(
            "each release admits its own limit: stop the old release before another changes the algorithm or period of a limit",
        ),
    ))
}
