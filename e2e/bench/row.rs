//! What is measured, row by row, with the goals that the project has set itself.

use crate::peer::PeerKind;

/// How many brokers a row runs against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// One, without replication.
    OneBroker,
    /// Three, with three replicas of every partition.
    ThreeBrokers,
}

impl Setting {
    pub(crate) fn brokers(self) -> usize {
        match self {
            Self::OneBroker => 1,
            Self::ThreeBrokers => 3,
        }
    }
}

/// What is done to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As fast as it goes. `batch_bytes` of `None` is librdkafka's default of 1 MB.
    Produce {
        size: u64,
        count: u64,
        batch_bytes: Option<u64>,
        warm: bool,
    },
    /// Everything of a topic that is in the page cache.
    Consume { size: u64, count: u64 },
    /// One record a request.
    Small {
        size: u64,
        connections: u64,
        seconds: u64,
    },
    /// A steady stream.
    Latency { rate: u64, seconds: u64 },
    /// Resident memory of a fresh broker.
    Memory,
    /// From the start of the process to the first answer, with that many partitions.
    Start { partitions: i32 },
}

impl Kind {
    /// Measured on fresh processes, before any load.
    pub(crate) fn is_about_the_process(self) -> bool {
        matches!(self, Self::Memory | Self::Start { .. })
    }
}

/// A limit that Taffrail shall keep on a row's first figure (or its e2e p99).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// At most so many times the peer's figure.
    Times(f64, PeerKind),
    /// At most this.
    Below(f64),
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) setting: Setting,
    pub(crate) kind: Kind,
    pub(crate) partitions: i32,
    /// The figure that is held against the goal, as `cell` names it.
    pub(crate) figure: &'static str,
    pub(crate) goal: Option<Goal>,
}

impl Row {
    /// The acknowledgements that the row's producers wait for.
    pub(crate) fn acks(&self) -> &'static str {
        match self.setting {
            Setting::OneBroker => "1",
            Setting::ThreeBrokers => "all",
        }
    }

    /// Is there something to measure on this peer? The null broker keeps nothing over a restart.
    pub(crate) fn measures(&self, kind: PeerKind) -> bool {
        kind != PeerKind::NullBroker || !matches!(self.kind, Kind::Start { .. })
    }
}

/// CPU of the broker for 10^9 bytes of values.
pub(crate) const CPU_PER_GB: &str = "CPU s/GB";
/// CPU of the broker for one request.
pub(crate) const CPU_PER_REQUEST: &str = "CPU us/request";
/// From sending to reading.
pub(crate) const E2E_P99: &str = "e2e p99 us";
/// Resident memory.
pub(crate) const RESIDENT: &str = "resident MB";
/// Start of the process to first answer.
pub(crate) const START: &str = "start s";

/// All rows, with `scale` percent of the usual number of records: a second or two of load for a fast peer, because a host that takes
/// free memory back begins again within seconds of the warming.
pub(crate) fn all(scale: u64) -> Vec<Row> {
    use Setting::{OneBroker, ThreeBrokers};
    let count = |usual: u64| usual * scale / 100;
    let produce = |size, usual, batch_bytes| Kind::Produce {
        size,
        count: count(usual),
        batch_bytes,
        warm: true,
    };
    let row = |name, setting, kind, partitions, figure, goal| Row {
        name,
        setting,
        kind,
        partitions,
        figure,
        goal,
    };
    let null = |times| Some(Goal::Times(times, PeerKind::NullBroker));
    let kafka = |times| Some(Goal::Times(times, PeerKind::Kafka));
    vec![
        row(
            "memory, idle",
            OneBroker,
            Kind::Memory,
            0,
            RESIDENT,
            Some(Goal::Below(40.0)),
        ),
        row(
            "start, no partitions",
            OneBroker,
            Kind::Start { partitions: 0 },
            0,
            START,
            Some(Goal::Below(0.5)),
        ),
        row(
            "start, 1,000 partitions",
            OneBroker,
            Kind::Start { partitions: 1000 },
            1000,
            START,
            None,
        ),
        row(
            "produce 1 KiB",
            OneBroker,
            produce(1024, 600_000, None),
            1,
            CPU_PER_GB,
            null(1.5),
        ),
        row(
            "produce 1 KiB, memory not warmed",
            OneBroker,
            Kind::Produce {
                size: 1024,
                count: count(600_000),
                batch_bytes: None,
                warm: false,
            },
            1,
            CPU_PER_GB,
            None,
        ),
        row(
            "produce 100 B",
            OneBroker,
            produce(100, 3_000_000, None),
            1,
            CPU_PER_GB,
            None,
        ),
        row(
            "produce 1 KiB, 16 KiB batches",
            OneBroker,
            produce(1024, 400_000, Some(16_384)),
            1,
            CPU_PER_GB,
            None,
        ),
        row(
            "produce 100 B, 16 KiB batches",
            OneBroker,
            produce(100, 2_000_000, Some(16_384)),
            1,
            CPU_PER_GB,
            None,
        ),
        row(
            "one record a request, 1 connection",
            OneBroker,
            small(1),
            1,
            CPU_PER_REQUEST,
            null(1.5),
        ),
        row(
            "one record a request, 16 connections",
            OneBroker,
            small(16),
            1,
            CPU_PER_REQUEST,
            null(1.5),
        ),
        row(
            "consume 1 KiB",
            OneBroker,
            Kind::Consume {
                size: 1024,
                count: count(600_000),
            },
            1,
            CPU_PER_GB,
            null(1.3),
        ),
        row(
            "consume 100 B",
            OneBroker,
            Kind::Consume {
                size: 100,
                count: count(3_000_000),
            },
            1,
            CPU_PER_GB,
            null(1.3),
        ),
        row(
            "latency, 500/s",
            OneBroker,
            Kind::Latency {
                rate: 500,
                seconds: 10,
            },
            1,
            E2E_P99,
            null(2.0),
        ),
        row(
            "replicated produce 1 KiB",
            ThreeBrokers,
            produce(1024, 300_000, None),
            12,
            CPU_PER_GB,
            kafka(1.0 / 3.0),
        ),
        row(
            "replicated latency, 500/s",
            ThreeBrokers,
            Kind::Latency {
                rate: 500,
                seconds: 10,
            },
            12,
            E2E_P99,
            kafka(0.25),
        ),
    ]
}

fn small(connections: u64) -> Kind {
    Kind::Small {
        size: 100,
        connections,
        seconds: 4,
    }
}
