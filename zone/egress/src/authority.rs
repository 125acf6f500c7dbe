//! The authority that a zone's sandboxes believe, and the certificates that it signs for hosts
//! whose requests are given headers.
//!
//! Its key never leaves the host. Everything about it but the key and its time is fixed, so that
//! the certificate need not be read again to sign in its name.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SerialNumber, date_time_ymd,
};
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};
use sandboxo_zone_protocol::{Clock, HostName, Random, Timestamp};

/// What programs show of it. Sandboxes keep its certificate under a hash of this name.
const NAME: &str = "sandboxo zone";
const DAY: Duration = Duration::from_hours(24);
/// Longer than sandboxes, snapshots and templates live.
const LIFE: Duration = Duration::from_hours(24 * 365 * 10);
const LEAF_LIFE: Duration = Duration::from_hours(24 * 14);
/// A certificate is made anew after so long.
const LEAF_FRESH: Duration = Duration::from_hours(24);
const LEAVES: usize = 1024;

#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("make a certificate")]
    Make(#[from] rcgen::Error),
    #[error("use a certificate")]
    Use(#[from] rustls::Error),
    #[error("it holds no certificate with its key")]
    Unreadable,
}

pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
    /// Of all leaves of this process.
    leaf_key: KeyPair,
    leaves: Mutex<HashMap<HostName, Leaf>>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

struct Leaf {
    made: Timestamp,
    key: Arc<CertifiedKey>,
}

impl Authority {
    /// A new one, as a text that is to be kept secret.
    pub fn make(clock: &dyn Clock, random: &dyn Random) -> Result<String, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = params();
        live(&mut params, clock.now(), LIFE);
        params.serial_number = Some(serial(random));
        let certificate = params.self_signed(&key)?;
        Ok(certificate.pem() + &key.serialize_pem())
    }

    /// One that was kept.
    pub fn read(
        kept: &str,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Self, AuthorityError> {
        const END: &str = "-----END CERTIFICATE-----";
        let end = kept.find(END).ok_or(AuthorityError::Unreadable)? + END.len();
        let (certificate, key) = kept.split_at(end);
        if CertificateDer::from_pem_slice(certificate.as_bytes()).is_err() {
            return Err(AuthorityError::Unreadable);
        }
        Ok(Self {
            certificate: format!("{}\n", certificate.replace('\r', "").trim()),
            issuer: Issuer::new(params(), KeyPair::from_pem(key)?),
            leaf_key: KeyPair::generate()?,
            leaves: Mutex::default(),
            clock,
            random,
        })
    }

    /// In PEM, for those who are to believe it.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// What whoever speaks for that host shows.
    pub(crate) fn leaf(&self, name: &HostName) -> Result<Arc<CertifiedKey>, AuthorityError> {
        let now = self.clock.now();
        if let Some(known) = self.leaves.lock().get(name) {
            let age = now.duration_since(known.made).unsigned_abs();
            if age < LEAF_FRESH {
                return Ok(known.key.clone());
            }
        }
        let key = Arc::new(self.sign(name, now)?);
        let mut leaves = self.leaves.lock();
        if leaves.len() >= LEAVES {
            leaves.clear();
        }
        leaves.insert(name.clone(), Leaf { made: now, key: key.clone() });
        Ok(key)
    }

    fn sign(&self, name: &HostName, now: Timestamp) -> Result<CertifiedKey, AuthorityError> {
        let mut params = CertificateParams::new(vec![name.as_str().to_owned()])?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        live(&mut params, now, LEAF_LIFE);
        params.serial_number = Some(serial(&*self.random));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&self.leaf_key, &self.issuer)?;
        let key = PrivatePkcs8KeyDer::from(self.leaf_key.serialize_der());
        let key = rustls::crypto::ring::sign::any_ecdsa_type(&PrivateKeyDer::from(key))?;
        Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
    }
}

fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// From a day ago: clocks are not all the same.
fn live(params: &mut CertificateParams, now: Timestamp, long: Duration) {
    let now = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(DAY);
    params.not_after = epoch + now + long;
}

fn serial(random: &dyn Random) -> SerialNumber {
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    // Positive, and of one length.
    if let Some(first) = bytes.first_mut() {
        *first = *first & 0x3f | 0x40;
    }
    SerialNumber::from_slice(&bytes)
}

#[cfg(test)]
mod tests {
    use rustls::{
        RootCertStore,
        client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
        pki_types::{ServerName, UnixTime},
    };
    use sandboxo_zone_protocol::fake::{ManualClock, SeededRandom};

    use super::*;

    fn believes(authority: &Authority, leaf: &CertifiedKey, name: &str, now: Timestamp) -> bool {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(authority.certificate().as_bytes());
        roots.add(certificate.unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(
            u64::try_from(now.as_second()).unwrap(),
        ));
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier.verify_server_cert(leaf.end_entity_cert().unwrap(), &[], &name, &[], now).is_ok()
    }

    #[test]
    fn whoever_believes_it_believes_what_it_signs() {
        let clock = Arc::new(ManualClock::default());
        let random = Arc::new(SeededRandom::new(1));
        let kept = Authority::make(&*clock, &*random).unwrap();
        let read = || Authority::read(&kept, clock.clone(), random.clone()).unwrap();
        let (authority, again) = (read(), read());
        assert_eq!(authority.certificate(), again.certificate());
        assert!(!authority.certificate().contains("PRIVATE"));

        let name: HostName = "api.example.com".parse().unwrap();
        let leaf = authority.leaf(&name).unwrap();
        let now = clock.now();
        for (why, by, at, host, expected) in [
            ("now", &authority, now, "api.example.com", true),
            ("by the same of another process", &again, now, "api.example.com", true),
            ("another host", &authority, now, "example.com", false),
            ("a clock that is behind", &authority, now - DAY, "api.example.com", true),
            ("much later", &authority, now + LEAF_LIFE + DAY, "api.example.com", false),
        ] {
            assert_eq!(believes(by, &leaf, host, at), expected, "{why}");
        }
        let other = Authority::make(&*clock, &*random).unwrap();
        let other = Authority::read(&other, clock.clone(), random.clone()).unwrap();
        assert!(!believes(&other, &leaf, "api.example.com", now));
        assert!(Arc::ptr_eq(&leaf, &authority.leaf(&name).unwrap()));
        clock.advance(LEAF_FRESH);
        let later = authority.leaf(&name).unwrap();
        assert!(!Arc::ptr_eq(&leaf, &later));
        assert_ne!(leaf.end_entity_cert().unwrap(), later.end_entity_cert().unwrap());
    }

    #[test]
    fn what_is_not_one_is_not_read() {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
        let whole = Authority::make(&*clock, &*random).unwrap();
        let read = |text: &str| Authority::read(text, clock.clone(), random.clone()).is_ok();
        assert!(read(&whole) && read(&whole.replace('\n', "\r\n")));
        let half = whole.split_at(whole.len() / 2).0;
        for text in ["", "x", half, &whole.replace("BEGIN PRIVATE", "BEGIN OTHER")] {
            assert!(!read(text), "{text}");
        }
    }
}
