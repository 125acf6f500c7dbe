//! What steps have left on the disk for the next build: so many, and not for ever.

use std::{sync::Arc, time::Duration};

use sandboxo_model::{BuildLogRecord, BuildPhase, BuildRecord, LayerKey, LayerRecord};
use sandboxo_store::{Read as _, StoreError};
use sandboxo_zone_protocol::CheckpointId;

use super::before;
use crate::context::Context;

/// Each holds everything that was written since its image.
const MAX_LAYERS: usize = 64;
const KEPT: Duration = Duration::from_hours(24 * 7);

impl Context {
    /// With the checkpoint that is of no use any more.
    pub(crate) async fn put_layer(
        &self,
        layer: LayerRecord,
    ) -> Result<Option<CheckpointId>, StoreError> {
        let _changing = self.accounts.changing.lock().await;
        let (checkpoint, layer) = (layer.checkpoint, Arc::new(layer));
        let written = Arc::clone(&layer);
        let write = self.store.write(move |tx| {
            let before = tx.get::<LayerRecord>(&written.key)?;
            tx.put(&*written);
            Ok::<_, StoreError>(before)
        });
        let replaced = write.await?;
        self.accounts.put_layer(layer);
        Ok(replaced.map(|it| it.checkpoint).filter(|it| *it != checkpoint))
    }

    /// Those that are over, or that nobody has begun, and what they said.
    pub(crate) async fn collect_builds(&self) -> Result<(), StoreError> {
        let before = before(self.now(), KEPT);
        let write = self.store.write(move |tx| {
            for build in tx.all::<BuildRecord>()? {
                let goes_on = matches!(build.phase, BuildPhase::Building { .. });
                if build.created_at < before && !goes_on {
                    tx.remove::<BuildLogRecord>(&build.id);
                    tx.remove::<BuildRecord>(&build.id);
                }
            }
            Ok(())
        });
        write.await
    }

    pub(crate) async fn sweep_uploads(&self) -> std::io::Result<()> {
        self.uploads.sweep(before(self.now(), KEPT)).await
    }

    pub(crate) async fn collect_layers(self: &Arc<Self>) -> Result<(), StoreError> {
        let _changing = self.accounts.changing.lock().await;
        let now = self.now();
        let gone: Vec<Arc<LayerRecord>> = too_many(self.accounts.layers(), before(now, KEPT));
        let keys: Vec<LayerKey> = gone.iter().map(|layer| layer.key).collect();
        let write = self.store.write(move |tx| {
            for key in &keys {
                tx.remove::<LayerRecord>(key);
            }
            Ok::<_, StoreError>(())
        });
        write.await?;
        for layer in gone {
            self.accounts.remove_layer(layer.key);
            self.discard_later(layer.checkpoint, None);
        }
        Ok(())
    }
}

/// Those not used since, and of the others all but the ones used last.
fn too_many(
    mut layers: Vec<Arc<LayerRecord>>,
    before: sandboxo_zone_protocol::Timestamp,
) -> Vec<Arc<LayerRecord>> {
    layers.sort_by_key(|layer| std::cmp::Reverse(layer.used_at));
    let recent = layers.iter().take(MAX_LAYERS).take_while(|layer| layer.used_at >= before).count();
    layers.split_off(recent)
}

#[cfg(test)]
mod tests {
    use sandboxo_zone_protocol::{ImageDigest, TeamId, Timestamp, fake::SeededRandom};

    use super::*;

    #[test]
    fn the_oldest_go() {
        let random = SeededRandom::new(1);
        let layer = |second: i64| {
            Arc::new(LayerRecord {
                key: LayerKey([0; 32]),
                team: TeamId::NIL,
                checkpoint: CheckpointId::random(&random),
                image: ImageDigest::from_bytes([0; 32]),
                used_at: Timestamp::from_second(second).unwrap(),
            })
        };
        let gone = |seconds: &[i64], before| -> Vec<i64> {
            let layers = seconds.iter().map(|second| layer(*second)).collect();
            let gone = too_many(layers, Timestamp::from_second(before).unwrap());
            gone.iter().map(|layer| layer.used_at.as_second()).collect()
        };
        assert_eq!(gone(&[1, 5, 3], 3), [1]);
        assert_eq!(gone(&[], 3), [0; 0]);
        let many: Vec<i64> = (0..i64::try_from(MAX_LAYERS).unwrap() + 2).collect();
        assert_eq!(gone(&many, 0), [1, 0]);
    }
}
