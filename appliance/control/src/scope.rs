//! Whose records a call may touch.

use sandboxo_zone_protocol::TeamId;

/// What is out of scope is not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Team(TeamId),
    /// Whoever runs the appliance: all teams.
    Operator,
}

impl Scope {
    pub fn includes(self, team: TeamId) -> bool {
        match self {
            Self::Team(own) => own == team,
            Self::Operator => true,
        }
    }
}

impl From<TeamId> for Scope {
    fn from(team: TeamId) -> Self {
        Self::Team(team)
    }
}
