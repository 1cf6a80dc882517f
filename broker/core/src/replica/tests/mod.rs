mod fetch_check;
mod follower;
mod leader;
mod leader_against_controller;
mod out_of_sync;
mod proof;
mod read_replica;
mod reassigned;
