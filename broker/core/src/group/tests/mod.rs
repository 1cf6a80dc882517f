mod admin;
mod membership;
mod offsets;
mod replay;
mod statics;
mod world;
