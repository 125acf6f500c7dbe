//! What users of systems that do the same job reported as broken, each tried here. A number is the
//! report's, and a test of that number holds the whole kind of fault.

mod commands;
mod files;
mod hosts;
mod lifecycle;
mod terminals;
mod wires;
