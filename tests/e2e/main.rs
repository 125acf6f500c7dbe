//! The machine as a whole: the real binary, real runsc, the published SDKs; and the rules of the
//! house that no lint knows.

mod architecture;
mod tidy;
