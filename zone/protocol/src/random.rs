//! Randomness is given too, so that a test can seed it.

pub trait Random: Send + Sync {
    fn fill(&self, bytes: &mut [u8]);
}

/// The kernel's generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    #[expect(clippy::expect_used, reason = "an id made of zeros would be worse than no process")]
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the kernel gives random bytes");
    }
}
