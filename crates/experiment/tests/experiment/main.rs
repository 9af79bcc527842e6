//! Tests of the public interface, as one program: it links once.

mod agreement;
mod boxes;
mod changes;
mod common;
mod controllers;
mod endpoints;
mod events;
mod extensions;
mod other_simulators;
mod other_times;
mod own_switches;
mod plans;
mod refusals;
mod runs;
mod settings;
mod xp;
