//! The machine as a whole: the real binary, real runsc, the published SDKs; and the rules of the
//! house that no lint knows.

#[cfg(test)]
mod architecture;
#[cfg(test)]
mod contained;
#[cfg(test)]
mod field_reports;
#[cfg(test)]
mod frozen;
#[cfg(test)]
mod full_disk;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod images;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod sdk;
#[cfg(test)]
mod survives;
#[cfg(test)]
mod tidy;
#[cfg(test)]
mod upgrade;
#[cfg(test)]
mod volumes;
