//! How much one sandbox gets.

use sandboxo_zone_protocol::Resources;

use crate::{Field, Invalid};

/// What a template gets that says nothing. Two vCPUs and 512 MiB are what E2B's `base` has, and
/// clients compare; the disk is sparse, so 10 GiB (what the hosted service leaves free) cost
/// only what is written; a JVM or a browser needs a few thousand threads.
pub const DEFAULT: Resources =
    Resources { vcpus: 2, memory_mib: 512, disk_mib: 10 * 1024, pids: 8192 };

const MIN: Resources = Resources { vcpus: 1, memory_mib: 128, disk_mib: 64, pids: 64 };
const MAX: Resources =
    Resources { vcpus: 64, memory_mib: 256 * 1024, disk_mib: 1024 * 1024, pids: 65_536 };

pub fn check(resources: Resources) -> Result<(), Invalid> {
    let Resources { vcpus, memory_mib, disk_mib, pids } = resources;
    for (field, value, min, max) in [
        (Field::Vcpus, vcpus, MIN.vcpus, MAX.vcpus),
        (Field::MemoryMib, memory_mib, MIN.memory_mib, MAX.memory_mib),
        (Field::DiskMib, disk_mib, MIN.disk_mib, MAX.disk_mib),
        (Field::Pids, pids, MIN.pids, MAX.pids),
    ] {
        if !(min..=max).contains(&value) {
            return Err(Invalid::new(field, format!("must be between {min} and {max}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_has_its_rule() {
        assert_eq!(check(DEFAULT), Ok(()));
        for (resources, expected) in [
            (Resources { vcpus: 0, ..DEFAULT }, "must be between 1 and 64"),
            (Resources { vcpus: 65, ..DEFAULT }, "must be between 1 and 64"),
            (Resources { memory_mib: 127, ..DEFAULT }, "must be between 128 and 262144"),
            (Resources { disk_mib: 63, ..DEFAULT }, "must be between 64 and 1048576"),
            (Resources { pids: 63, ..DEFAULT }, "must be between 64 and 65536"),
        ] {
            assert_eq!(check(resources).unwrap_err().rule, expected);
        }
    }
}
