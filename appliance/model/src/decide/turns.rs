//! Whose start is next, when more are wanted than can be done at once.
//!
//! Teams take turns: the one with the fewest starts under way comes first, then the one whose last
//! turn is longest ago. Within a team it is first come, first served. So one start of a team that
//! asks for little waits for those under way, and never for a queue of somebody else's. Nor do
//! starts of one team that hang stop another's: a quarter of the room is never one team's.

use std::collections::{BTreeMap, VecDeque};

use sandboxo_zone_protocol::TeamId;

/// `T` stands for one that waits.
#[derive(Debug)]
pub struct Turns<T> {
    at_once: usize,
    under_way: usize,
    teams: BTreeMap<TeamId, Team<T>>,
    given: u64,
}

#[derive(Debug)]
struct Team<T> {
    waiting: VecDeque<T>,
    under_way: usize,
    /// The number of its last turn.
    last: u64,
}

impl<T> Turns<T> {
    pub fn new(at_once: usize) -> Self {
        Self { at_once: at_once.max(1), under_way: 0, teams: BTreeMap::new(), given: 0 }
    }

    pub fn at_once(&self) -> usize {
        self.at_once
    }

    fn most_of_one_team(&self) -> usize {
        self.at_once - self.at_once.div_ceil(4).min(self.at_once - 1)
    }

    pub fn wait(&mut self, team: TeamId, one: T) {
        let fresh = || Team { waiting: VecDeque::new(), under_way: 0, last: 0 };
        self.teams.entry(team).or_insert_with(fresh).waiting.push_back(one);
    }

    /// Under way from now on, until [`Self::done`].
    pub fn give(&mut self) -> Option<(TeamId, T)> {
        if self.under_way >= self.at_once {
            return None;
        }
        let most = self.most_of_one_team();
        let mut waiting = self.teams.iter_mut();
        let waiting =
            waiting.by_ref().filter(|(_, team)| !team.waiting.is_empty() && team.under_way < most);
        let (id, team) = waiting.min_by_key(|(id, team)| (team.under_way, team.last, **id))?;
        let one = team.waiting.pop_front()?;
        self.given += 1;
        self.under_way += 1;
        team.under_way += 1;
        team.last = self.given;
        Some((*id, one))
    }

    /// Also of one that has left before its turn was over.
    pub fn done(&mut self, team: TeamId) {
        self.under_way = self.under_way.saturating_sub(1);
        if let Some(known) = self.teams.get_mut(&team) {
            known.under_way = known.under_way.saturating_sub(1);
            if known.under_way == 0 && known.waiting.is_empty() {
                self.teams.remove(&team);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn team(n: u8) -> TeamId {
        struct Same(u8);
        impl sandboxo_zone_protocol::Random for Same {
            fn fill(&self, bytes: &mut [u8]) {
                bytes.fill(self.0);
            }
        }
        TeamId::random(&Same(n))
    }

    /// What happens, as a line of words, and who has had a turn by then.
    fn play(at_once: usize, story: &str) -> String {
        let (a, b, c) = (team(1), team(2), team(3));
        let mut turns = Turns::new(at_once);
        let mut had = Vec::new();
        let id = |name: &str| match &name[..1] {
            "a" => a,
            "b" => b,
            _ => c,
        };
        for word in story.split(' ') {
            match word.split_once('-') {
                Some(("done", name)) => turns.done(id(name)),
                _ => turns.wait(id(word), word.to_owned()),
            }
            while let Some((_, name)) = turns.give() {
                had.push(name);
            }
        }
        had.join(" ")
    }

    #[test]
    fn table() {
        for (why, at_once, story, expected) in [
            ("all at once while there is room", 4, "a1 a2 b1", "a1 a2 b1"),
            ("no more than there is room for", 3, "a1 a2 b1 b2", "a1 a2 b1"),
            ("some room is for others", 4, "a1 a2 a3 a4 a5 b1 b2", "a1 a2 a3 b1"),
            ("first come, first served within a team", 1, "a1 a2 a3 done-a done-a", "a1 a2 a3"),
            ("a newcomer is next", 3, "a1 a2 a3 a4 b1 done-a", "a1 a2 b1 a3"),
            ("the fewest under way come first", 3, "a1 a2 a3 b1 b2 c1 done-a", "a1 a2 b1 c1"),
            (
                "teams take turns",
                1,
                "a1 a2 a3 b1 b2 c1 done-a done-b done-c done-a done-b",
                "a1 b1 c1 a2 b2 a3",
            ),
            ("nothing at all is one at a time", 0, "a1 a2", "a1"),
        ] {
            assert_eq!(play(at_once, story), expected, "{why}");
        }
    }

    #[test]
    fn a_flood_of_one_team_costs_another_the_starts_under_way_and_no_more() {
        let (flood, one) = (team(1), team(2));
        let mut turns = Turns::new(6);
        for n in 0..200 {
            turns.wait(flood, n);
        }
        while turns.give().is_some() {}
        for n in 0..3 {
            turns.wait(one, 1000 + n);
        }
        assert_eq!(turns.give(), Some((one, 1000)), "there is room kept free");
        assert_eq!(turns.give(), Some((one, 1001)));
        assert!(turns.give().is_none());
        turns.done(flood);
        assert_eq!(turns.give(), Some((one, 1002)), "it has fewer under way");
    }

    #[test]
    fn teams_that_want_nothing_are_forgotten() {
        let mut turns = Turns::new(1);
        turns.wait(team(1), ());
        assert!(turns.give().is_some());
        turns.done(team(1));
        turns.done(team(1));
        assert!(turns.teams.is_empty());
        assert_eq!(turns.under_way, 0);
    }
}
