//! Runs sandboxes on this host.

mod bundle;
mod cgroup;
mod config;
mod disk;
mod image;
mod process;
mod runsc;
mod slot;

mod network {
    #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
    pub struct LeaseRecord {
        pub name: String,
    }
}
