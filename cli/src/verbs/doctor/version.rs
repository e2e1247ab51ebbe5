//! The product and the version of a server, and if Tidegate supports them.

use super::finding::Finding;
use crate::reply::Info;

/// The oldest versions that Tidegate supports.
const OLDEST_REDIS: (u32, u32) = (6, 2);
const OLDEST_VALKEY: (u32, u32) = (7, 2);

pub(super) fn examine(info: &Info) -> Finding {
    let product = [("valkey_version", "Valkey"), ("dragonfly_version", "Dragonfly"), ("redis_version", "Redis")]
        .into_iter()
        .find_map(|(name, product)| Some((product, info.get(name)?)));
    let Some((product, version)) = product else {
        return Finding::note("version", "the server does not report its version").advice(supported());
    };
    let oldest = match product {
        "Redis" => OLDEST_REDIS,
        "Valkey" => OLDEST_VALKEY,
        _ => {
            return Finding::note("version", format!("{product} {version}: Tidegate is not tested with it"))
                .advice(supported());
        }
    };
    match major_and_minor(version) {
        Some(found) if found >= oldest => Finding::ok("version", format!("{product} {version}")),
        Some(_) => Finding::problem("version", format!("{product} {version} is too old")).advice(supported()),
        None => Finding::note("version", format!("{product} {version}: its number cannot be read")).advice(supported()),
    }
}

fn supported() -> String {
    format!(
        "Tidegate needs Redis {}.{} or newer, or Valkey {}.{} or newer",
        OLDEST_REDIS.0, OLDEST_REDIS.1, OLDEST_VALKEY.0, OLDEST_VALKEY.1
    )
}

fn major_and_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn old_versions_are_problems() {
        for (info, level) in [
            ("redis_version:6.2.0", Level::Ok),
            ("redis_version:7.0.15\r\n", Level::Ok),
            ("redis_version:8.2.1", Level::Ok),
            ("redis_version:10.0.0", Level::Ok),
            ("redis_version:6.0.16", Level::Problem),
            ("redis_version:5.0.7", Level::Problem),
            ("redis_version:2.8.24", Level::Problem),
            ("redis_version:7.2.4\nvalkey_version:8.1.0", Level::Ok),
            ("redis_version:7.2.4\nvalkey_version:7.2.5", Level::Ok),
            ("redis_version:7.2.4\nvalkey_version:7.0.0", Level::Problem),
            ("redis_version:7.2.0\ndragonfly_version:df-1.2", Level::Note),
            ("redis_version:unknown", Level::Note),
            ("", Level::Note),
        ] {
            assert_eq!(examine(&Info::from_text(info)).level, level, "{info:?}");
        }
    }
}
