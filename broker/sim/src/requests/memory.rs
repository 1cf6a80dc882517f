//! What one request makes a broker hold, and compute: every API for clients with the most that a frame can repeat, from the
//! frame's arrival to the last byte of its answer. The decoders have their own limit, which the fuzz targets look at; here
//! it is what the handlers make of a request that decodes.

use std::fs;
use std::time::Duration;

use taffrail_allocation::{Taken, measure};
use taffrail_protocol::api::advertised;
use taffrail_protocol::messages::find_coordinator_request::FindCoordinatorRequest;
use taffrail_protocol::messages::join_group_request::{JoinGroupRequest, JoinGroupRequestProtocol};
use taffrail_protocol::{ApiKey, Request};

use super::{Alone, frame, rows};

/// A group that exists, with one member.
pub(super) const GROUP: &str = "workers";

/// A request may take so many times its frame at once. Decoded, it takes up to 16 times (`Reader`); one that only the controller
/// answers is encoded for it and decoded there once more; and its answer, which has an entry for each of its entries, stands
/// there three times at the end: as what was decided, as a message, and as bytes.
const TIMES: usize = 64;
/// And so much whatever the frame: what the broker does beside it, and what is a fixed size.
const ALWAYS: usize = 1 << 20;
/// Computing that must suffice, in time of this thread alone, so that a busy machine does not matter. Where the work grows with
/// the frame, handlers take a fifth of it and less; where it grows with the square, twice as much and more.
const CPU_LIMIT: Duration = Duration::from_millis(500);

/// One request.
pub(super) struct Row {
    api: ApiKey,
    /// What is in it.
    what: &'static str,
    /// Without the length in front.
    frame: Vec<u8>,
}

pub(super) fn row<R: Request>(what: &'static str, version: i16, request: R) -> Row {
    Row {
        api: ApiKey::try_from(R::API_KEY).expect("one of ours"),
        what,
        frame: frame(&request, version),
    }
}

impl Alone {
    /// Has the coordinators of groups made, and one member join. Gives its id.
    fn with_member(&mut self) -> String {
        let find = FindCoordinatorRequest {
            coordinator_keys: vec![GROUP.to_owned()],
            ..FindCoordinatorRequest::default()
        };
        let join = JoinGroupRequest {
            group_id: GROUP.to_owned(),
            session_timeout_ms: 1_000_000,
            rebalance_timeout_ms: 1_000_000,
            protocol_type: "consumer".to_owned(),
            protocols: vec![JoinGroupRequestProtocol {
                name: "range".to_owned(),
                metadata: Vec::new(),
            }],
            ..JoinGroupRequest::default()
        };
        for _ in 0..100 {
            self.call(&find, 4);
            let joined = self.call(&join, 3);
            if joined.error_code == 0 {
                return joined.member_id;
            }
            let now = self.cluster.executor.now();
            let later = now + Duration::from_millis(200);
            self.cluster.executor.run_until(later, || false);
        }
        panic!("nobody coordinates");
    }
}

/// The computing that this thread has done.
fn cpu() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat.split(' ').next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// Why a row fails, if it does.
fn check(alone: &mut Alone, row: Row) -> Option<String> {
    let (name, size) = (format!("{:?}, {}", row.api, row.what), row.frame.len());
    let allowed = TIMES * size + ALWAYS;
    let before = cpu();
    let (answer, taken) = measure(|| alone.handle(row.frame).map(|answer| answer.len()));
    let Taken { peak, .. } = taken;
    let took = cpu() - before;
    match answer {
        Err(reason) => Some(format!("{name}: {reason}")),
        Ok(_) if peak > allowed => Some(format!(
            "{name}: {size} bytes held {peak}, {allowed} are allowed"
        )),
        Ok(_) if took > CPU_LIMIT => Some(format!("{name}: {size} bytes took {took:?}")),
        Ok(_) => None,
    }
}

#[test]
fn no_request_makes_a_broker_hold_more_than_a_small_multiple_of_its_frame() {
    let mut alone = Alone::new();
    let member_id = alone.with_member();
    let rows = rows::all(&member_id);
    for range in advertised() {
        let api = range.api_key;
        assert!(rows.iter().any(|row| row.api == api), "{api:?} has no row");
    }
    let rows = rows.into_iter();
    let failures: Vec<String> = rows.filter_map(|row| check(&mut alone, row)).collect();
    assert!(failures.is_empty(), "{failures:#?}");
}
