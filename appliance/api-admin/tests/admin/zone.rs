//! The zone's name and how full it is.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn the_zone_is_shown() {
    let world = World::new().await;
    let answer = world.ask("GET /zone", "").await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.body,
        json!({
            "name": "local1",
            "region": "loc",
            "ready": true,
            "bootId": "boot-1",
            "instance": "0a1b2c",
            "poolSize": 4,
            "blanks": 2,
            "freezeAfterSeconds": 60,
            "images": "/state/zone/images",
            "build": "1-new",
            "keeperBuild": "1-old",
            "capacity": {
                "toldAt": "2026-01-01T00:00:00Z",
                "running": 0,
                "limit": 10_000,
                "warm": 0,
                "blanks": 0,
                "frozen": 0,
                "freeMemoryMib": 8192,
                "freeDiskMib": 65_536,
            },
        })
    );
}
