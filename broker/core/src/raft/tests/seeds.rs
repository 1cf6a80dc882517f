//! Random faults from seeds. `TAFFRAIL_RAFT_SEEDS` at build time sets how many; a failure names its seed.

use super::quorum::Quorum;
use crate::ids::BrokerId;

const STEPS: u64 = 1500;

fn seeds() -> u64 {
    option_env!("TAFFRAIL_RAFT_SEEDS")
        .and_then(|count| count.parse().ok())
        .unwrap_or(60)
}

#[test]
fn faults_lose_nothing_that_was_acknowledged() {
    for seed in 0..seeds() {
        let result = std::panic::catch_unwind(|| run(3 + 2 * (seed % 5 / 4) as i32, seed));
        if let Err(panic) = result {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn run(size: i32, seed: u64) {
    let mut quorum = Quorum::new(size, seed);
    quorum.loss_percent = seed % 4 * 5;
    let mut proposals = 0;
    for _ in 0..STEPS {
        let id = BrokerId(quorum.random(size as u64) as i32);
        match quorum.random(1000) {
            0..350 => quorum.tick(id),
            350..700 => {
                quorum.shuffle();
                quorum.deliver();
            }
            700..900 => {
                quorum.sync(id);
            }
            900..960 => {
                if let Some(leader) = quorum.leader() {
                    proposals += 1;
                    // Refused while leadership moves; that is what the seed shows.
                    let _ = quorum.propose(leader, &format!("{proposals}"));
                }
            }
            960..970 => quorum.compact(id),
            970..980 => {
                if quorum.is_up(id) {
                    quorum.crash(id);
                } else {
                    quorum.restart(id);
                }
            }
            980..985 => quorum.cut_off(id),
            985..993 => quorum.heal(),
            993..995 => {
                // True or not: it must do no harm.
                if let Some(leader) = quorum.leader()
                    && quorum.is_up(id)
                {
                    quorum.node(id).handle_leader_gone(leader);
                }
            }
            _ => {
                if let Some(leader) = quorum.leader() {
                    quorum.node(leader).transfer_leader(id);
                }
            }
        }
    }
    quorum.end_well();
}
