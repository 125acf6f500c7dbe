//! Metadata of files, kept in extended attributes. A file system without them has no metadata,
//! which is no error.

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString},
    fs::File,
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
    path::Path,
};

use nix::{errno::Errno, libc};

const PREFIX: &str = "user.e2b.";
/// What a set of names or one value can take at most.
const LARGEST: usize = 64 * 1024;

/// By key, without the prefix.
pub(crate) fn metadata_of(path: &Path) -> BTreeMap<String, String> {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return BTreeMap::new() };
    let mut found = BTreeMap::new();
    for name in ours(&names_at(&path).unwrap_or_default()) {
        let Ok(value) = value_at(&path, &name) else { continue };
        if let (Ok(name), Ok(value)) = (name.into_string(), String::from_utf8(value))
            && let Some(key) = name.strip_prefix(PREFIX)
        {
            found.insert(key.to_owned(), value);
        }
    }
    found
}

/// The whole set: what the file had before is gone.
pub(crate) fn replace_metadata(
    file: &File,
    is_new: bool,
    metadata: &BTreeMap<String, String>,
) -> Result<(), Errno> {
    // Each call is an event for those who watch, so none is made without need.
    if !is_new {
        for name in ours(&names_of(file).unwrap_or_default()) {
            let kept = name.to_str().ok().and_then(|name| name.strip_prefix(PREFIX));
            if !kept.is_some_and(|key| metadata.contains_key(key)) {
                supported(remove(file, &name))?;
            }
        }
    }
    for (key, value) in metadata {
        let name = CString::new(format!("{PREFIX}{key}")).or(Err(Errno::EINVAL))?;
        supported(set(file, &name, value.as_bytes()))?;
    }
    Ok(())
}

fn supported(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::ENODATA | Errno::EPERM) => Ok(()),
        other => other,
    }
}

/// From names that each end in a zero byte.
fn ours(names: &[u8]) -> Vec<CString> {
    names
        .split_inclusive(|byte| *byte == 0)
        .filter_map(|name| CStr::from_bytes_with_nul(name).ok())
        .filter(|name| name.to_bytes().starts_with(PREFIX.as_bytes()))
        .map(CStr::to_owned)
        .collect()
}

/// Asks with a small buffer first: nearly all sets fit.
fn filled(call: impl Fn(&mut [u8]) -> isize) -> Result<Vec<u8>, Errno> {
    for size in [512, LARGEST] {
        let mut buffer = vec![0; size];
        match Errno::result(call(&mut buffer)) {
            Ok(length) => {
                buffer.truncate(length.unsigned_abs());
                return Ok(buffer);
            }
            Err(Errno::ERANGE) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::ERANGE)
}

#[expect(unsafe_code, reason = "a call the library does not have")]
fn names_at(path: &CStr) -> Result<Vec<u8>, Errno> {
    filled(|buffer| {
        // SAFETY: the path ends in zero, and the buffer is as long as said.
        unsafe { libc::listxattr(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) }
    })
}

#[expect(unsafe_code, reason = "a call the library does not have")]
fn names_of(file: &File) -> Result<Vec<u8>, Errno> {
    filled(|buffer| {
        // SAFETY: the descriptor is open, and the buffer is as long as said.
        unsafe { libc::flistxattr(file.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) }
    })
}

#[expect(unsafe_code, reason = "a call the library does not have")]
fn value_at(path: &CStr, name: &CStr) -> Result<Vec<u8>, Errno> {
    filled(|buffer| {
        let room = buffer.as_mut_ptr().cast();
        // SAFETY: both texts end in zero, and the buffer is as long as said.
        unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), room, buffer.len()) }
    })
}

#[expect(unsafe_code, reason = "a call the library does not have")]
fn set(file: &File, name: &CStr, value: &[u8]) -> Result<(), Errno> {
    let (bytes, length) = (value.as_ptr().cast(), value.len());
    // SAFETY: the name ends in zero, and the value is as long as said.
    let result = unsafe { libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), bytes, length, 0) };
    Errno::result(result).map(drop)
}

#[expect(unsafe_code, reason = "a call the library does not have")]
fn remove(file: &File, name: &CStr) -> Result<(), Errno> {
    // SAFETY: the name ends in zero.
    let result = unsafe { libc::fremovexattr(file.as_raw_fd(), name.as_ptr()) };
    Errno::result(result).map(drop)
}
