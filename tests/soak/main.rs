//! Long use leaves nothing behind: on the host, in the appliance, in the keeper.

#[cfg(test)]
mod contended;
#[cfg(test)]
mod crowd;
#[cfg(test)]
mod long_path;
#[cfg(test)]
mod rounds;
