//! Whole endpoints over the virtual-time fabric: what a user's message goes through.

mod world;

mod delivery;
