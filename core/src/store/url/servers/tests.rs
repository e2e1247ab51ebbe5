use super::parse::joined;
use super::*;
use crate::store::url::StoreUrl;

fn endpoints(text: &str) -> Endpoints {
    match StoreUrl::parse(text) {
        Ok(StoreUrl::Redis(endpoints)) => *endpoints,
        Ok(_) => panic!("{text} is no server"),
        Err(error) => panic!("{text}: {error}"),
    }
}

#[test]
fn a_user_without_a_host_is_one_of_this_machine() {
    for (text, port, database, user) in [
        ("redis://:pw@/3", 6379, 3, None),
        ("redis://:pw@", 6379, 0, None),
        ("valkey://me:pw@?protocol=3", 6379, 0, Some("me")),
        ("redis://me:pw@:6380/1", 6380, 1, Some("me")),
        #[cfg(feature = "tls")]
        ("rediss://me:pw@/", 6379, 0, Some("me")),
    ] {
        let found = endpoints(text);
        let login = &found.login;
        assert_eq!(
            (login.user.as_deref(), login.password.as_deref(), login.database),
            (user, Some("pw"), database),
            "{text}"
        );
        match &found.deployment {
            Deployment::Single(Address::Tcp(host, at)) => assert_eq!((&**host, *at), ("127.0.0.1", port), "{text}"),
            _ => panic!("{text} is one server"),
        }
        assert!(!found.shown.contains("pw"), "{}", found.shown);
    }
}

#[test]
fn a_socket_keeps_its_path() {
    for (text, path, password) in [
        ("redis+unix://:pw@/run/redis.sock?db=2", "/run/redis.sock", Some("pw")),
        ("redis+unix:///run/@/redis.sock", "/run/@/redis.sock", None),
    ] {
        let found = endpoints(text);
        assert_eq!(found.login.password.as_deref(), password, "{text}");
        assert!(matches!(&found.deployment, Deployment::Single(Address::Unix(at)) if at.as_os_str() == path), "{text}");
    }
}

#[test]
fn several_servers_are_named_with_commas() {
    let found = endpoints("redis+sentinel://me:p%40w@a,b:1,[::1]:2/the%20name/3?sentinel_password=s&read_from=replica");
    let Deployment::Sentinel { sentinels, name, login } = &found.deployment else { panic!("sentinels") };
    assert_eq!(joined(sentinels), "a:26379,b:1,[::1]:2");
    assert_eq!((name.as_str(), login.password.as_deref(), found.login.database), ("the name", Some("s"), 3));
    assert_eq!((found.login.user.as_deref(), found.login.password.as_deref()), (Some("me"), Some("p@w")));
    assert!(found.read_replicas && !found.shown.contains("p@w") && !found.shown.contains("sentinel_password"));
    let found = endpoints("valkey+cluster://:pw@a:7000,b");
    assert!(matches!(&found.deployment, Deployment::Cluster(seeds) if joined(seeds) == "a:7000,b:6379"));
    assert!(found.certificates.is_none() && !found.read_replicas);
    assert_eq!(found.shown, "valkey+cluster://a:7000,b:6379");
}

#[cfg(feature = "tls")]
#[test]
fn a_scheme_with_another_s_encrypts() {
    let found = endpoints("valkeys+cluster://:pw@a:7000,b");
    assert!(found.certificates.is_some());
    assert_eq!(found.shown, "valkeys+cluster://a:7000,b:6379");
}
