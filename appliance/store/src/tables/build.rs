//! Builds, what they said, and their layers.

use std::{fmt, str::FromStr};

use sandboxo_model::{
    BuildFailure, BuildLine, BuildLogRecord, BuildPhase, BuildRecord, From as BuiltFrom, LayerKey,
    LayerRecord, Level, Recipe, Step,
};
use sandboxo_zone_protocol::{BuildId, CheckpointId, ImageDigest, TeamId, TemplateId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Plain, Record, hex, sandbox::ResourcesRow};
use crate::{DecodeError, codec, schema::Table};

#[derive(Serialize, Deserialize)]
struct RowV1 {
    id: BuildId,
    template: TemplateId,
    team: TeamId,
    tags: Vec<String>,
    resources: ResourcesRow,
    created_at: Timestamp,
    phase: PhaseRow,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum PhaseRow {
    Waiting,
    Building { recipe: RecipeRow, attempt: u32 },
    Ready { at: Timestamp },
    Failed { at: Timestamp, message: String, step: Option<String> },
}

#[derive(Serialize, Deserialize)]
struct RecipeRow {
    from: FromRow,
    steps: Vec<StepRow>,
    start: Option<String>,
    ready: Option<String>,
    force: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FromRow {
    Image(String),
    PrivateImage(String),
    Template(String),
}

#[derive(Serialize, Deserialize)]
struct StepRow {
    kind: String,
    args: Vec<String>,
    files: Option<String>,
    force: bool,
}

impl Plain for BuildRecord {}

impl Record for BuildRecord {
    type Id = BuildId;
    const TABLE: Table = Table::Builds;

    fn key(id: &BuildId) -> Vec<u8> {
        id.to_string().into()
    }

    fn id(&self) -> BuildId {
        self.id
    }

    fn encode(&self) -> Vec<u8> {
        let Self { id, template, team, tags, resources, created_at, phase } = self.clone();
        let phase = match phase {
            BuildPhase::Waiting => PhaseRow::Waiting,
            BuildPhase::Building { recipe, attempt } => {
                PhaseRow::Building { recipe: recipe.into(), attempt }
            }
            BuildPhase::Ready { at } => PhaseRow::Ready { at },
            BuildPhase::Failed { at, failure: BuildFailure { message, step } } => {
                PhaseRow::Failed { at, message, step: step.map(|step| step.to_string()) }
            }
        };
        let resources = resources.into();
        codec::encode(1, &RowV1 { id, template, team, tags, resources, created_at, phase })
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let RowV1 { id, template, team, tags, resources, created_at, phase } =
            codec::decode_only(1, bytes)?;
        let phase = match phase {
            PhaseRow::Waiting => BuildPhase::Waiting,
            PhaseRow::Building { recipe, attempt } => {
                BuildPhase::Building { recipe: recipe.record()?, attempt }
            }
            PhaseRow::Ready { at } => BuildPhase::Ready { at },
            PhaseRow::Failed { at, message, step } => {
                let step = step.as_deref().map(parse).transpose()?;
                BuildPhase::Failed { at, failure: BuildFailure { message, step } }
            }
        };
        let resources = resources.into();
        Ok(Self { id, template, team, tags, resources, created_at, phase })
    }
}

impl From<Recipe> for RecipeRow {
    fn from(recipe: Recipe) -> Self {
        let Recipe { from, steps, start, ready, force } = recipe;
        let from = match from {
            BuiltFrom::Image(name) => FromRow::Image(name.to_string()),
            BuiltFrom::PrivateImage(name) => FromRow::PrivateImage(name.to_string()),
            BuiltFrom::Template(text) => FromRow::Template(text),
        };
        let step = |Step { kind, args, files, force }: Step| {
            let files = files.map(|files| files.as_str().to_owned());
            StepRow { kind, args, files, force }
        };
        Self { from, steps: steps.into_iter().map(step).collect(), start, ready, force }
    }
}

impl RecipeRow {
    fn record(self) -> Result<Recipe, DecodeError> {
        let Self { from, steps, start, ready, force } = self;
        let from = match from {
            FromRow::Image(name) => BuiltFrom::Image(parse(&name)?),
            FromRow::PrivateImage(name) => BuiltFrom::PrivateImage(parse(&name)?),
            FromRow::Template(text) => BuiltFrom::Template(text),
        };
        let step = |StepRow { kind, args, files, force }: StepRow| {
            let files = files.as_deref().map(parse).transpose()?;
            Ok::<_, DecodeError>(Step { kind, args, files, force })
        };
        let steps = steps.into_iter().map(step).collect::<Result<_, _>>()?;
        Ok(Recipe { from, steps, start, ready, force })
    }
}

fn parse<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<T, DecodeError> {
    text.parse().map_err(|error| DecodeError::Value(format!("{text:?}: {error}")))
}

#[derive(Serialize, Deserialize)]
struct LogRowV1 {
    build: BuildId,
    lines: Vec<LineRow>,
}

#[derive(Serialize, Deserialize)]
struct LineRow {
    at: Timestamp,
    level: LevelRow,
    message: String,
    step: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LevelRow {
    Debug,
    Info,
    Warn,
    Error,
}

impl Plain for BuildLogRecord {}

impl Record for BuildLogRecord {
    type Id = BuildId;
    const TABLE: Table = Table::BuildLogs;

    fn key(id: &BuildId) -> Vec<u8> {
        id.to_string().into()
    }

    fn id(&self) -> BuildId {
        self.build
    }

    fn encode(&self) -> Vec<u8> {
        let line = |BuildLine { at, level, message, step }: &BuildLine| LineRow {
            at: *at,
            level: match level {
                Level::Debug => LevelRow::Debug,
                Level::Info => LevelRow::Info,
                Level::Warn => LevelRow::Warn,
                Level::Error => LevelRow::Error,
            },
            message: message.clone(),
            step: step.map(|step| step.to_string()),
        };
        let lines = self.lines.iter().map(line).collect();
        codec::encode(1, &LogRowV1 { build: self.build, lines })
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let LogRowV1 { build, lines } = codec::decode_only(1, bytes)?;
        let line = |LineRow { at, level, message, step }: LineRow| {
            let level = match level {
                LevelRow::Debug => Level::Debug,
                LevelRow::Info => Level::Info,
                LevelRow::Warn => Level::Warn,
                LevelRow::Error => Level::Error,
            };
            let step = step.as_deref().map(parse).transpose()?;
            Ok::<_, DecodeError>(BuildLine { at, level, message, step })
        };
        Ok(Self { build, lines: lines.into_iter().map(line).collect::<Result<_, _>>()? })
    }
}

#[derive(Serialize, Deserialize)]
struct LayerRowV1 {
    key: String,
    team: TeamId,
    checkpoint: CheckpointId,
    image: ImageDigest,
    used_at: Timestamp,
}

impl Plain for LayerRecord {}

impl Record for LayerRecord {
    type Id = LayerKey;
    const TABLE: Table = Table::Layers;

    fn key(id: &LayerKey) -> Vec<u8> {
        id.0.to_vec()
    }

    fn id(&self) -> LayerKey {
        self.key
    }

    fn encode(&self) -> Vec<u8> {
        let Self { key: LayerKey(key), team, checkpoint, image, used_at } = *self;
        let key = hex::print(&key);
        codec::encode(1, &LayerRowV1 { key, team, checkpoint, image, used_at })
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let LayerRowV1 { key, team, checkpoint, image, used_at } = codec::decode_only(1, bytes)?;
        Ok(Self { key: LayerKey(hex::parse(&key)?), team, checkpoint, image, used_at })
    }
}

#[cfg(test)]
mod tests {
    use sandboxo_model::StepName;

    use super::*;
    use crate::tables::golden;

    fn build(phase: BuildPhase) -> BuildRecord {
        BuildRecord {
            id: "0c9a6f6e-51a7-4b0e-9f7f-0f8b2f0c7a11".parse().unwrap(),
            template: golden::template(),
            team: golden::team(),
            tags: vec!["default".into()],
            resources: sandboxo_model::resources::DEFAULT,
            created_at: golden::time(),
            phase,
        }
    }

    fn recipe() -> Recipe {
        Recipe {
            from: BuiltFrom::Image("ubuntu:22.04".parse().unwrap()),
            steps: vec![Step {
                kind: "COPY".into(),
                args: vec!["a".into(), "b".into()],
                files: Some("ab".repeat(32).parse().unwrap()),
                force: true,
            }],
            start: Some("serve".into()),
            ready: None,
            force: false,
        }
    }

    #[test]
    fn format_1() {
        golden::check(
            &build(BuildPhase::Building { recipe: recipe(), attempt: 1 }),
            b"\x01{\"id\":\"0c9a6f6e-51a7-4b0e-9f7f-0f8b2f0c7a11\",\
              \"template\":\"0123456789abcdefghjk\",\
              \"team\":\"8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d\",\"tags\":[\"default\"],\
              \"resources\":{\"vcpus\":2,\"memory_mib\":512,\"disk_mib\":10240,\"pids\":8192},\
              \"created_at\":\"2026-01-02T03:04:05.678901234Z\",\
              \"phase\":{\"type\":\"building\",\"recipe\":{\
              \"from\":{\"image\":\"docker.io/library/ubuntu:22.04\"},\
              \"steps\":[{\"kind\":\"COPY\",\"args\":[\"a\",\"b\"],\
              \"files\":\"abababababababababababababababababababababababababababababababab\",\
              \"force\":true}],\"start\":\"serve\",\"ready\":null,\"force\":false},\
              \"attempt\":1}}",
        );
    }

    #[test]
    fn the_rest_of_format_1() {
        let from = BuiltFrom::Template("base".into());
        let private = BuiltFrom::PrivateImage("localhost:5000/a:b".parse().unwrap());
        let failure = |step| BuildFailure { message: "no".into(), step };
        let at = golden::time();
        for phase in [
            BuildPhase::Waiting,
            BuildPhase::Building { recipe: Recipe { from, ..recipe() }, attempt: 2 },
            BuildPhase::Building { recipe: Recipe { from: private, ..recipe() }, attempt: 1 },
            BuildPhase::Ready { at },
            BuildPhase::Failed { at, failure: failure(None) },
            BuildPhase::Failed { at, failure: failure(Some(StepName::Step(3))) },
        ] {
            let record = build(phase);
            assert_eq!(BuildRecord::decode(&record.encode()).unwrap(), record);
        }
    }

    #[test]
    fn format_1_of_logs() {
        let record = BuildLogRecord {
            build: "0c9a6f6e-51a7-4b0e-9f7f-0f8b2f0c7a11".parse().unwrap(),
            lines: vec![BuildLine {
                at: golden::time(),
                level: Level::Info,
                message: "hello".into(),
                step: Some(StepName::Base),
            }],
        };
        golden::check(
            &record,
            b"\x01{\"build\":\"0c9a6f6e-51a7-4b0e-9f7f-0f8b2f0c7a11\",\
              \"lines\":[{\"at\":\"2026-01-02T03:04:05.678901234Z\",\"level\":\"info\",\
              \"message\":\"hello\",\"step\":\"base\"}]}",
        );
    }

    #[test]
    fn format_1_of_layers() {
        let record = LayerRecord {
            key: LayerKey([0xab; 32]),
            team: golden::team(),
            checkpoint: "0123456789abcdefghjm".parse().unwrap(),
            image: ImageDigest::from_bytes([0xcd; 32]),
            used_at: golden::time(),
        };
        golden::check(
            &record,
            b"\x01{\"key\":\"abababababababababababababababababababababababababababababababab\",\
              \"team\":\"8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d\",\
              \"checkpoint\":\"0123456789abcdefghjm\",\
              \"image\":\"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd\",\
              \"used_at\":\"2026-01-02T03:04:05.678901234Z\"}",
        );
    }
}
