//! Which ports a local cluster uses: all follow from one base, so that a second cluster only needs another base.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use super::LocalError;

/// Client port of broker 0 unless said otherwise: Kafka's own.
pub const DEFAULT_BASE: u16 = 9092;

/// Distance between the ports of one broker and of the next.
const STEP: u32 = 100;
/// From a broker's client port to its internal one.
const INTERNAL: u32 = 1;
/// From a broker's client port to its metrics port: 9092 to 9404, where exporters for Kafka are looked for.
const METRICS: u32 = 312;
/// From the base to the operator's metrics port.
const OPERATOR_METRICS: u32 = 212;

/// The ports of one local cluster, all on 127.0.0.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    base: u16,
}

impl Ports {
    /// Ports for this many brokers, if they fit below 65536.
    pub fn new(base: u16, brokers: i32) -> Result<Self, LocalError> {
        if base == 0 {
            return Err(LocalError::PortZero);
        }
        let ports = Self { base };
        let last = ports.number(brokers.saturating_sub(1), METRICS);
        if last > u32::from(u16::MAX) {
            return Err(LocalError::PortsTooHigh {
                base,
                brokers,
                last,
            });
        }
        Ok(ports)
    }

    /// Where clients reach a broker.
    pub fn client(self, broker: i32) -> SocketAddr {
        self.address(broker, 0)
    }

    /// Where brokers reach each other.
    pub fn internal(self, broker: i32) -> SocketAddr {
        self.address(broker, INTERNAL)
    }

    /// A broker's HTTP port.
    pub fn metrics(self, broker: i32) -> SocketAddr {
        self.address(broker, METRICS)
    }

    /// The operator's HTTP port.
    pub fn operator_metrics(self) -> SocketAddr {
        self.address(0, OPERATOR_METRICS)
    }

    /// Refuses if a program listens on a port that a broker needs.
    pub fn check_free(self, broker: i32) -> Result<(), LocalError> {
        let wanted = [
            (self.client(broker), "clients"),
            (self.internal(broker), "other brokers"),
            (self.metrics(broker), "metrics"),
        ];
        for (address, purpose) in wanted {
            check_free(address, format!("broker {broker}, {purpose}"))?;
        }
        Ok(())
    }

    fn address(self, broker: i32, offset: u32) -> SocketAddr {
        // `new` checked the highest one, so that none is cut off here.
        let port = u16::try_from(self.number(broker, offset)).unwrap_or(u16::MAX);
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    fn number(self, broker: i32, offset: u32) -> u32 {
        let broker = u32::try_from(broker).unwrap_or(0);
        u32::from(self.base) + STEP * broker + offset
    }
}

/// Refuses if a program listens on the address.
pub(super) fn check_free(address: SocketAddr, purpose: String) -> Result<(), LocalError> {
    TcpListener::bind(address)
        .map(drop)
        .map_err(|_| LocalError::PortTaken {
            port: address.port(),
            purpose,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn quickstart_has_the_documented_ports() {
        let ports = Ports::new(DEFAULT_BASE, 3).expect("they fit");
        let numbers =
            |of: fn(Ports, i32) -> SocketAddr| [0, 1, 2].map(|broker| of(ports, broker).port());
        assert_eq!(numbers(Ports::client), [9092, 9192, 9292]);
        assert_eq!(numbers(Ports::internal), [9093, 9193, 9293]);
        assert_eq!(numbers(Ports::metrics), [9404, 9504, 9604]);
        assert_eq!(ports.operator_metrics().port(), 9304);
    }

    #[test]
    fn no_two_are_the_same() {
        let ports = Ports::new(DEFAULT_BASE, 50).expect("they fit");
        let mut seen = BTreeSet::from([ports.operator_metrics()]);
        for broker in 0..50 {
            assert!(seen.insert(ports.client(broker)));
            assert!(seen.insert(ports.internal(broker)));
            assert!(seen.insert(ports.metrics(broker)));
        }
    }

    #[test]
    fn ports_that_do_not_fit_are_refused() {
        assert!(Ports::new(65_000, 3).is_ok());
        let refusal = |base, brokers| {
            let error = Ports::new(base, brokers).expect_err("they do not fit");
            error.to_string()
        };
        assert_eq!(
            refusal(65_000, 4),
            "--base-port 65000: 4 brokers need ports up to 65612, and 65535 is the highest"
        );
        assert_eq!(
            refusal(0, 3),
            "--base-port 0: clients have to find the brokers again, so name the first port, such as 9092"
        );
    }

    #[test]
    fn taken_port_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let error = check_free(address, "broker 0, clients".to_owned()).expect_err("taken");
        assert_eq!(
            error.to_string(),
            format!(
                "port {} (broker 0, clients) is taken by another program; stop it, or choose other ports with --base-port",
                address.port()
            )
        );
    }
}
