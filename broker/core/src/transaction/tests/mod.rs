mod ends;
mod initialization;
mod markers;
mod replay;
mod time;
mod world;
