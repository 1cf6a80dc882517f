mod fetch_check;
mod follower;
mod leader;
mod leader_against_controller;
