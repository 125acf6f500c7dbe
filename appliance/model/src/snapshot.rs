//! What was kept of sandboxes for others to start from, and how it is called.
//!
//! Clients know a snapshot as a template: by `id:tag`, or by the name that it was given.

use std::{collections::BTreeMap, time::Duration};

use sandboxo_zone_protocol::{
    BuildId, CheckpointId, ImageDigest, Kept, NetworkMode, NetworkPolicy, Origin, Platform,
    Resources, SandboxId, Secret, TeamId, TemplateId, Timestamp, VolumeMount,
};

use crate::{Phase, SandboxRecord, TemplateName, TemplateRecord, TemplateUse, rules};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRecord {
    pub id: TemplateId,
    pub kind: SnapshotKind,
    pub team: TeamId,
    /// Other teams may use it too. Nobody else sees what was taken of a sandbox.
    pub public: bool,
    /// Unique in the team, where it is no template's either. `None`: it is known by its id.
    pub name: Option<TemplateName>,
    /// By tag. Of a snapshot there is at least one.
    pub builds: BTreeMap<String, SnapshotBuild>,
    pub created_at: Timestamp,
}

/// Where its builds come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotKind {
    /// Somebody kept a sandbox of his own.
    Taken,
    /// Recipes: to clients it is a template like those that were imported.
    Built,
}

/// One moment of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotBuild {
    pub id: BuildId,
    pub at: Timestamp,
    pub sandbox: SandboxId,
    /// Stays as long as this does.
    pub checkpoint: CheckpointId,
    /// Of what the checkpoint keeps, what counts.
    pub kept: Kept,
    pub image: ImageDigest,
    pub resources: Resources,
    pub platform: Platform,
    pub mode: NetworkMode,
    pub env: BTreeMap<String, String>,
    pub user: String,
    pub workdir: Option<String>,
    /// What starts from it has these volumes, and maybe more.
    pub volumes: Vec<VolumeMount>,
}

/// What a sandbox is made of before anything is asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    pub id: TemplateId,
    pub image: ImageDigest,
    pub resources: Resources,
    pub platform: Platform,
    pub mode: NetworkMode,
    /// Under those of the request.
    pub env: BTreeMap<String, String>,
    pub user: String,
    pub workdir: Option<String>,
    pub origin: Origin,
    /// Of the checkpoint; those that are asked for come after them.
    pub volumes: Vec<VolumeMount>,
}

/// What a copy of a sandbox has of its own.
#[derive(Debug, Clone)]
pub struct Fork {
    pub id: SandboxId,
    pub origin: Origin,
    /// Used where the original has them.
    pub agent_token: Secret,
    pub traffic_token: Secret,
    pub timeout: Duration,
    pub now: Timestamp,
    /// How long the zone may take.
    pub budget: Duration,
}

impl SnapshotBuild {
    pub fn of(
        record: &SandboxRecord,
        id: BuildId,
        at: Timestamp,
        checkpoint: CheckpointId,
        kept: Kept,
    ) -> Self {
        let spec = &record.spec;
        Self {
            id,
            at,
            sandbox: record.id,
            checkpoint,
            kept,
            image: spec.image,
            resources: spec.resources,
            platform: spec.platform,
            mode: spec.network.mode,
            env: spec.env.clone(),
            user: spec.user.clone(),
            workdir: spec.workdir.clone(),
            volumes: spec.volumes.clone(),
        }
    }

    /// `id`: of its snapshot.
    pub fn base(&self, id: TemplateId) -> Base {
        Base {
            id,
            image: self.image,
            resources: self.resources,
            platform: self.platform,
            mode: self.mode,
            env: self.env.clone(),
            user: self.user.clone(),
            workdir: self.workdir.clone(),
            origin: origin(self.checkpoint, self.kept),
            volumes: self.volumes.clone(),
        }
    }
}

/// A start from what counts of a checkpoint.
pub fn origin(checkpoint: CheckpointId, kept: Kept) -> Origin {
    Origin::Checkpoint { id: checkpoint, reboot: kept == Kept::Files }
}

impl From<&TemplateRecord> for Base {
    fn from(template: &TemplateRecord) -> Self {
        Self {
            id: template.id,
            image: template.image,
            resources: template.resources,
            platform: template.platform,
            mode: NetworkPolicy::OPEN.mode,
            env: template.env.clone(),
            user: template.user.clone(),
            workdir: template.workdir.clone(),
            origin: Origin::Image,
            volumes: Vec::new(),
        }
    }
}

impl SandboxRecord {
    /// It goes on as this one does, under an identity of its own.
    #[must_use]
    pub fn fork(&self, fork: Fork) -> Self {
        let Fork { id, origin, agent_token, traffic_token, timeout, now, budget } = fork;
        let mut copy = self.clone();
        copy.id = id;
        copy.template = TemplateUse { alias: None, ..copy.template };
        copy.spec.id = id;
        copy.spec.hostname = id.label();
        copy.spec.agent_token = self.spec.agent_token.is_some().then_some(agent_token);
        copy.spec.deadline = rules::after(now, timeout);
        copy.spec.origin = origin;
        copy.ingress.traffic_token = self.ingress.traffic_token.is_some().then_some(traffic_token);
        // Another workload, for which nobody has asked for any.
        copy.identity = None;
        copy.timeout = timeout;
        copy.created_at = now;
        copy.phase = Phase::Starting { give_up_at: rules::after(now, budget) };
        copy
    }

    /// It starts from it, or will.
    pub fn wants(&self, checkpoint: CheckpointId) -> bool {
        self.phase.checkpoint().or_else(|| self.starts_from()) == Some(checkpoint)
    }

    /// Of one that starts for the first time.
    pub fn starts_from(&self) -> Option<CheckpointId> {
        match (&self.phase, self.spec.origin) {
            (Phase::Starting { .. }, Origin::Checkpoint { id, .. }) => Some(id),
            (
                Phase::Starting { .. }
                | Phase::Running { .. }
                | Phase::Pausing { .. }
                | Phase::Paused { .. }
                | Phase::Resuming { .. }
                | Phase::Killing { .. }
                | Phase::Dead { .. },
                _,
            ) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use sandboxo_zone_protocol::ExecutionId;

    use super::*;
    use crate::{Identity, Tokens, sample};

    fn checkpoint() -> CheckpointId {
        "00000000000000000007".parse().unwrap()
    }

    #[test]
    fn a_copy_has_an_identity_of_its_own() {
        let [one, other] = ["1", "2"].map(|n| format!("sbx_loc_{n:0>20}").parse().unwrap());
        let now = Timestamp::from_second(9).unwrap();
        let mut original = sample::record(
            one,
            now,
            Phase::Running { started_at: now, expires_at: Timestamp::MAX },
        );
        original.spec.agent_token = Some(Secret::new("old"));
        original.spec.env = BTreeMap::from([("a".into(), "b".into())]);
        original.metadata = BTreeMap::from([("c".into(), "d".into())]);
        let tokens = [("a".parse().unwrap(), "b".parse().unwrap())].into();
        let tokens = Tokens::new(tokens).unwrap();
        original.identity = Some(Identity { tokens, execution: ExecutionId::NIL });
        let fork = |original: &SandboxRecord| {
            original.fork(Fork {
                id: other,
                origin: origin(checkpoint(), Kept::Memory),
                agent_token: Secret::new("new"),
                traffic_token: Secret::new("new"),
                timeout: Duration::from_secs(15),
                now,
                budget: Duration::from_secs(30),
            })
        };
        let copy = fork(&original);
        assert_eq!((copy.id, copy.spec.id, &copy.spec.hostname), (other, other, &other.label()));
        assert_eq!(copy.spec.agent_token, Some(Secret::new("new")));
        assert_eq!(copy.ingress.traffic_token, None);
        assert_eq!(copy.identity, None);
        assert_eq!((&copy.spec.env, &copy.metadata), (&original.spec.env, &original.metadata));
        assert_eq!(copy.spec.deadline, rules::after(now, Duration::from_secs(15)));
        assert!(copy.wants(checkpoint()) && !original.wants(checkpoint()));
        original.spec.agent_token = None;
        original.ingress.traffic_token = Some(Secret::new("old"));
        let copy = fork(&original);
        assert_eq!(copy.spec.agent_token, None);
        assert_eq!(copy.ingress.traffic_token, Some(Secret::new("new")));
    }

    #[test]
    fn what_counts_says_how_to_start() {
        for (kept, reboot) in [(Kept::Memory, false), (Kept::Files, true)] {
            assert_eq!(origin(checkpoint(), kept), Origin::Checkpoint { id: checkpoint(), reboot });
        }
    }
}
