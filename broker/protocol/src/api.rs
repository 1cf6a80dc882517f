//! Which APIs exist, in which versions they are served and told to clients, and which headers they have.

use crate::messages::APIS;
pub use crate::messages::ApiKey;

/// The first private key: APIs among brokers, refused on client listeners.
pub const FIRST_PRIVATE_KEY: i16 = 20_000;

/// The versions of one API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiVersionRange {
    /// The API.
    pub api_key: ApiKey,
    /// First version, inclusive.
    pub min_version: i16,
    /// Last version, inclusive.
    pub max_version: i16,
}

/// ApiVersions 5 lets a client ask for a certain cluster and broker (KIP-1242); behind a Kubernetes Service that
/// balances over brokers it would send clients away, so 4 is the last that is served.
const API_VERSIONS_MAX: i16 = 4;

/// Those of transactions and of consumer groups of the new protocol: there are messages and no handlers yet. Nobody is told of
/// them, and who asks is not answered.
const fn is_withheld(api_key: ApiKey) -> bool {
    matches!(
        api_key,
        ApiKey::AddPartitionsToTxn
            | ApiKey::AddOffsetsToTxn
            | ApiKey::EndTxn
            | ApiKey::WriteTxnMarkers
            | ApiKey::TxnOffsetCommit
            | ApiKey::DescribeProducers
            | ApiKey::DescribeTransactions
            | ApiKey::ListTransactions
            | ApiKey::ConsumerGroupHeartbeat
            | ApiKey::ConsumerGroupDescribe
    )
}

/// Whether an ApiVersions answer lists the API of this position.
const fn is_advertised(position: usize) -> bool {
    let api_key = APIS[position].0;
    (api_key as i16) < FIRST_PRIVATE_KEY && !is_withheld(api_key)
}

/// The number of APIs for clients.
const CLIENT_APIS: usize = {
    let (mut count, mut position) = (0, 0);
    while position < APIS.len() {
        count += is_advertised(position) as usize;
        position += 1;
    }
    count
};

static ADVERTISED: [ApiVersionRange; CLIENT_APIS] = {
    let mut ranges = [ApiVersionRange {
        api_key: ApiKey::Produce,
        min_version: 0,
        max_version: 0,
    }; CLIENT_APIS];
    let (mut count, mut position) = (0, 0);
    while position < APIS.len() {
        if !is_advertised(position) {
            position += 1;
            continue;
        }
        let api_key = APIS[position].0;
        let (first, last) = served_range(position);
        // librdkafka up to 2.11.0 compresses only if Produce 0 is offered (KAFKA-18659); it is still refused when used.
        let min_version = if matches!(api_key, ApiKey::Produce) {
            0
        } else {
            first
        };
        ranges[count] = ApiVersionRange {
            api_key,
            min_version,
            max_version: last,
        };
        count += 1;
        position += 1;
    }
    ranges
};

const fn served_range(position: usize) -> (i16, i16) {
    let (api_key, first, last, _) = APIS[position];
    if is_withheld(api_key) {
        return (0, -1);
    }
    (
        first,
        if matches!(api_key, ApiKey::ApiVersions) {
            API_VERSIONS_MAX
        } else {
            last
        },
    )
}

/// What an ApiVersions answer lists, by ascending key. Private APIs are not among them.
pub fn advertised() -> &'static [ApiVersionRange] {
    &ADVERTISED
}

impl ApiKey {
    /// Every API, private ones included, by ascending key.
    pub fn all() -> impl Iterator<Item = ApiKey> {
        APIS.iter().map(|(api, ..)| *api)
    }

    /// The number on the wire.
    pub fn code(self) -> i16 {
        self as i16
    }

    /// Whether only brokers and the operator may call it, on the internal listener.
    pub fn is_private(self) -> bool {
        self.code() >= FIRST_PRIVATE_KEY
    }

    /// The versions that are answered: those advertised, except that Produce starts at 3.
    pub fn served(self) -> ApiVersionRange {
        let (min_version, max_version) = APIS
            .iter()
            .position(|(api_key, ..)| *api_key == self)
            .map_or((0, -1), served_range);
        ApiVersionRange {
            api_key: self,
            min_version,
            max_version,
        }
    }

    /// Whether a request in this version is answered.
    pub fn is_served(self, version: i16) -> bool {
        let served = self.served();
        (served.min_version..=served.max_version).contains(&version)
    }

    /// Whether the version has compact lengths and tagged fields.
    pub fn is_flexible(self, version: i16) -> bool {
        APIS.iter()
            .any(|(api_key, _, _, flexible)| *api_key == self && version >= *flexible)
    }

    /// The version of the header in front of a request: 2 with tagged fields, else 1.
    pub fn request_header_version(self, version: i16) -> i16 {
        if self.is_flexible(version) { 2 } else { 1 }
    }

    /// The version of the header in front of a response: 1 with tagged fields, else 0.
    /// An ApiVersions response has 0 always, for its reader may not know yet what is flexible (KIP-511).
    pub fn response_header_version(self, version: i16) -> i16 {
        if self != Self::ApiVersions && self.is_flexible(version) {
            1
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advertised_versions_are_those_of_kafka_4_4() {
        let expected = [
            (0, 0, 13),
            (1, 4, 18),
            (2, 1, 11),
            (3, 0, 13),
            (8, 2, 10),
            (9, 1, 10),
            (10, 0, 6),
            (11, 0, 9),
            (12, 0, 4),
            (13, 0, 5),
            (14, 0, 5),
            (15, 0, 6),
            (16, 0, 5),
            (18, 0, 4),
            (19, 2, 7),
            (20, 1, 6),
            (21, 0, 2),
            (22, 0, 5),
            (23, 2, 4),
            (32, 1, 4),
            (34, 1, 2),
            (35, 1, 5),
            (37, 0, 3),
            (42, 0, 3),
            (43, 0, 2),
            (44, 0, 1),
            (45, 0, 1),
            (46, 0, 0),
            (47, 0, 0),
            (55, 0, 2),
            (60, 0, 2),
            (75, 0, 0),
            (80, 0, 1),
            (81, 0, 0),
        ];
        let advertised: Vec<(i16, i16, i16)> = advertised()
            .iter()
            .map(|range| (range.api_key.code(), range.min_version, range.max_version))
            .collect();
        assert_eq!(advertised, expected);
    }

    #[test]
    fn produce_is_served_from_3_though_advertised_from_0() {
        assert_eq!(ApiKey::Produce.served().min_version, 3);
        assert!(
            !ApiKey::Produce.is_served(2)
                && ApiKey::Produce.is_served(3)
                && ApiKey::Produce.is_served(13)
        );
    }

    #[test]
    fn what_is_withheld_is_neither_told_nor_answered() {
        for api_key in [
            ApiKey::EndTxn,
            ApiKey::WriteTxnMarkers,
            ApiKey::ListTransactions,
            ApiKey::ConsumerGroupHeartbeat,
        ] {
            assert!(advertised().iter().all(|range| range.api_key != api_key));
            assert!((-1..=9).all(|version| !api_key.is_served(version)));
        }
    }

    #[test]
    fn headers_follow_flexible_versions() {
        let cases = [
            (ApiKey::Produce, 8, 1, 0),
            (ApiKey::Produce, 9, 2, 1),
            (ApiKey::ApiVersions, 2, 1, 0),
            (ApiKey::ApiVersions, 3, 2, 0),
            (ApiKey::OffsetFetch, 6, 2, 1),
            (ApiKey::OffsetDelete, 0, 1, 0),
            (ApiKey::PeerHello, 0, 2, 1),
        ];
        for (api_key, version, request, response) in cases {
            assert_eq!(
                api_key.request_header_version(version),
                request,
                "{api_key:?} {version}"
            );
            assert_eq!(
                api_key.response_header_version(version),
                response,
                "{api_key:?} {version}"
            );
        }
    }
}
