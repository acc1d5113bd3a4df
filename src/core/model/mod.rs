//! The model (head to be written).

mod check;
mod encode;
mod scenarios;
mod search;
mod simulator;
mod world;
