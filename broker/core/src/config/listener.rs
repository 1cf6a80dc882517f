//! Addresses in config values: `NAME://host:port` of a listener, `id@host:port` of a voter, `host:port`.

use std::fmt;

use super::definition::ValueType;
use super::value::{ConfigValue, list};

/// One listener: where it binds, or what clients are told.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    /// Its name, upper case.
    pub name: String,
    /// Host name or address, IPv6 without brackets; empty binds to every address.
    pub host: String,
    /// TCP port; 0 binds to a free one.
    pub port: u16,
}

impl Listener {
    /// Whether it binds to every address, which no client can be told.
    pub fn is_wildcard(&self) -> bool {
        matches!(self.host.as_str(), "" | "0.0.0.0" | "::")
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.name)?;
        write_address(f, &self.host, self.port)
    }
}

/// One member of the metadata quorum.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Voter {
    /// Its broker id.
    pub id: i32,
    /// Host name or address of its internal listener.
    pub host: String,
    /// Port of its internal listener.
    pub port: u16,
}

/// An address to bind to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPort {
    /// Host name or address, IPv6 without brackets; empty binds to every address.
    pub host: String,
    /// TCP port; 0 binds to a free one.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_address(f, &self.host, self.port)
    }
}

fn write_address(f: &mut fmt::Formatter<'_>, host: &str, port: u16) -> fmt::Result {
    if host.contains(':') {
        write!(f, "[{host}]:{port}")
    } else {
        write!(f, "{host}:{port}")
    }
}

impl ConfigValue for HostPort {
    const TYPE: ValueType = ValueType::String;
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = host_port(text)?;
        Some(HostPort { host, port })
    }
}

impl ConfigValue for Vec<Listener> {
    const TYPE: ValueType = ValueType::List;
    fn parse(text: &str) -> Option<Self> {
        list(text).map(listener).collect()
    }
}

impl ConfigValue for Vec<Voter> {
    const TYPE: ValueType = ValueType::List;
    fn parse(text: &str) -> Option<Self> {
        list(text).map(voter).collect()
    }
}

fn listener(text: &str) -> Option<Listener> {
    let (name, address) = text.split_once("://")?;
    let named = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    let (host, port) = host_port(address)?;
    named.then(|| Listener {
        name: name.to_ascii_uppercase(),
        host,
        port,
    })
}

fn voter(text: &str) -> Option<Voter> {
    let (id, address) = text.split_once('@')?;
    let id = id.parse().ok().filter(|id| *id >= 0)?;
    let (host, port) = host_port(address)?;
    (!host.is_empty() && port > 0).then_some(Voter { id, host, port })
}

/// Splits at the last colon; brackets around an IPv6 address are dropped.
fn host_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    let legal = host
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte));
    legal.then(|| (host.to_string(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        let shown = listener(text).map(|listener| format!("{listener:?}"));
        let expected = expected.and_then(|text| {
            let mut words = text.split(' ');
            let (name, host, port) = (words.next()?, words.next()?, words.next()?.parse().ok()?);
            let host = if host == "-" { "" } else { host };
            Some(format!(
                "{:?}",
                Listener {
                    name: name.into(),
                    host: host.into(),
                    port
                }
            ))
        });
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn listeners_are_read_as_kafka_writes_them() {
        check("PLAINTEXT://:9092", Some("PLAINTEXT - 9092"));
        check(
            "internal://broker-0.demo:9093",
            Some("INTERNAL broker-0.demo 9093"),
        );
        check("A://[::1]:1", Some("A ::1 1"));
        check("A://[::1:1", None);
        check("A://::1:1", None);
        check("://h:1", None);
        check("A://h", None);
        check("A://h:65536", None);
        check("A://h/x:1", None);
        check("h:1", None);
    }
}
