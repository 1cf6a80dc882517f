mod admin;
mod membership;
mod offsets;
mod pending;
mod protocols;
mod replay;
mod statics;
mod world;
