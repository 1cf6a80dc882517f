mod admin;
mod membership;
mod offsets;
mod protocols;
mod replay;
mod statics;
mod world;
