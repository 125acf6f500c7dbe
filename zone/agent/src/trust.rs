//! The authority that signs for hosts whose requests are given headers on their way: programs in
//! the sandbox are made to believe it.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

/// Where tools that make the bundles anew look for more, and what is written last: where it lies
/// all the rest is done.
const OWN: &str = "usr/local/share/ca-certificates/sandboxo.crt";
/// What most programs read: of Debian, Alpine and Arch; of Red Hat; of SUSE.
const BUNDLES: [&str; 3] = [
    "etc/ssl/certs/ca-certificates.crt",
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "var/lib/ca-certificates/ca-bundle.pem",
];
/// Where OpenSSL looks for one authority after the other, by a hash of its name, which is always
/// the same.
const HASHED: [&str; 2] = ["etc/ssl/certs", "etc/pki/tls/certs"];
const HASH: &str = "bfed2669.0";

/// Writes it into the sandbox whose root this is. Once: what the sandbox makes of it later is the
/// sandbox's.
pub(crate) fn believe(root: &Path, certificate: &str) -> io::Result<()> {
    let own = root.join(OWN);
    if fs::read_to_string(&own).is_ok_and(|known| known == certificate) {
        return Ok(());
    }
    for bundle in BUNDLES {
        match OpenOptions::new().append(true).open(root.join(bundle)) {
            // In front of it, for one that does not end in a line.
            Ok(mut file) => file.write_all(format!("\n{certificate}").as_bytes())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    for folder in HASHED.map(|folder| root.join(folder)) {
        if folder.is_dir() {
            fs::write(folder.join(HASH), certificate)?;
        }
    }
    if let Some(folder) = own.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(own, certificate)
}

/// For programs that bring authorities of their own. Of the least weight: a template, a client and
/// a request may say otherwise.
pub(crate) fn variables(root: &Path) -> Vec<(&'static str, String)> {
    let mut variables = vec![("NODE_EXTRA_CA_CERTS", format!("/{OWN}"))];
    if let Some(bundle) = BUNDLES.into_iter().find(|bundle| root.join(bundle).is_file()) {
        for name in ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"] {
            variables.push((name, format!("/{bundle}")));
        }
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_read_has_it_once() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("etc/ssl/certs")).unwrap();
        fs::write(path(BUNDLES[0]), "others").unwrap();
        for certificate in ["one\n", "one\n", "two\n"] {
            believe(root.path(), certificate).unwrap();
        }
        let read = |name: &str| fs::read_to_string(path(name)).unwrap();
        assert_eq!(read(BUNDLES[0]), "others\none\n\ntwo\n");
        assert_eq!(read(OWN), "two\n");
        assert_eq!(read(&format!("{}/{HASH}", HASHED[0])), "two\n");
        assert!(!path("etc/pki").exists());
        let names: Vec<_> = variables(root.path()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"]);
    }

    #[test]
    fn an_image_without_authorities_stays_without() {
        let root = tempfile::tempdir().unwrap();
        believe(root.path(), "one\n").unwrap();
        assert!(!root.path().join("etc").exists());
        assert_eq!(variables(root.path()), [("NODE_EXTRA_CA_CERTS", format!("/{OWN}"))]);
    }
}
