//! From what a client said about egress to what a zone enforces.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use sandboxo_zone_protocol::{
    EgressProxy, HostName, NamePattern, NetworkMode, NetworkPolicy, NotAProxyAddress, ProxyHost,
    ProxyLogin, Sealed, Secret, SetHeader, may_be_proxy,
    placeholder::{NotAPlaceholder, Part, parts},
};

use crate::{NotASecretName, NotATokenName, SecretName, TokenName};

/// As given by the client, to be shown again as it was. `None` where it said nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetworkAsked {
    pub allow_out: Option<Vec<String>>,
    pub deny_out: Option<Vec<String>>,
    pub allow_public_traffic: Option<bool>,
    pub mask_request_host: Option<String>,
    /// By host.
    pub rules: Option<BTreeMap<String, Vec<HostRule>>>,
    pub egress_proxy: Option<ProxyAsked>,
    /// Where programs speak TLS.
    pub https_ports: Option<Vec<u16>>,
    /// Allowed as well where hosts are allowed by name.
    pub dns_servers: Option<Vec<String>>,
}

/// By whom all connections are to leave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProxyAsked {
    pub address: String,
    pub username: Option<String>,
    /// Gone from here once it is sealed in the policy; never recorded.
    pub password: Option<Secret>,
}

/// What requests to a host are given on their way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostRule {
    pub headers: Option<BTreeMap<String, Secret>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    #[error("{0:?} is not an IP address or CIDR")]
    DenyNotAddress(String),
    #[error("{0:?} is neither an IP address or CIDR nor a domain or *.domain")]
    AllowNotKnown(String),
    /// In the words of E2B's own server.
    #[error(
        "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out \
         to block all other traffic."
    )]
    NamesNeedDenyAll,
    #[error("more than {} entries", NetworkAsked::MAX_ENTRIES)]
    TooMany,
    #[error("rules of more than {} hosts", NetworkAsked::MAX_RULED)]
    TooManyRuled,
    #[error("the rule for {host:?}: {why}")]
    Rule { host: String, why: RuleError },
    #[error("dnsServers: {0:?} is not an IPv4 address")]
    NotAServer(String),
    #[error("dnsServers: more than {} entries", NetworkAsked::MAX_DNS_SERVERS)]
    TooManyServers,
    #[error("egressProxy: {0}")]
    Proxy(#[from] ProxyError),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    #[error("address: {0:?} is {NotAProxyAddress}")]
    NotAnAddress(String),
    #[error(
        "address: {0} is not on the public internet, nor in a network that this server allows \
         proxies in"
    )]
    Inside(Ipv4Addr),
    #[error("username: more than {} bytes", NetworkAsked::MAX_PROXY_LOGIN)]
    LongUsername,
    #[error("password: more than {} bytes", NetworkAsked::MAX_PROXY_LOGIN)]
    LongPassword,
    /// RFC 1929 has neither alone.
    #[error("password: a username needs one")]
    NoPassword,
    #[error("username: a password needs one")]
    NoUsername,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("not the name of a host")]
    NotHost,
    #[error("another one means the same host")]
    Twice,
    #[error("more than one transform")]
    TooMany,
    #[error("more than {} headers", NetworkAsked::MAX_HEADERS)]
    TooManyHeaders,
    #[error("{0:?} is not the name of a header of at most {len} characters", len = NetworkAsked::MAX_HEADER_NAME)]
    NotHeader(String),
    #[error("{0:?} is what a connection needs, and is never set")]
    NotToBeSet(String),
    #[error("the value of {0:?} has more than {len} bytes, or some that no header can have", len = NetworkAsked::MAX_HEADER_VALUE)]
    NotValue(String),
    #[error("the value of {header:?}: {why}")]
    Placeholder { header: String, why: NotAPlaceholder },
    #[error("the value of {header:?} names a secret {secret:?}: {why}")]
    NotASecret { header: String, secret: String, why: NotASecretName },
    #[error("the value of {header:?} names a token {token:?}: {why}")]
    NotAToken { header: String, token: String, why: NotATokenName },
}

impl NetworkAsked {
    pub const MAX_ENTRIES: usize = 256;
    pub const MAX_RULED: usize = 10;
    pub const MAX_HEADERS: usize = 20;
    pub const MAX_HEADER_NAME: usize = 64;
    pub const MAX_HEADER_VALUE: usize = 2048;
    pub const MAX_DNS_SERVERS: usize = 10;
    /// Of a name or password, by RFC 1929.
    pub const MAX_PROXY_LOGIN: usize = 255;

    /// What the zone enforces, but that nobody can open the password of a proxy before it is
    /// [`seal`](Self::seal)ed. `internet` is `allow_internet_access`: `Some(false)` denies
    /// everything that is not allowed by name.
    pub fn policy(
        asked: Option<&Self>,
        internet: Option<bool>,
    ) -> Result<NetworkPolicy, NetworkError> {
        let list = |of: fn(&Self) -> &Option<Vec<String>>| {
            asked.and_then(|asked| of(asked).as_deref()).unwrap_or_default()
        };
        let (allow_out, deny_out) = (list(|asked| &asked.allow_out), list(|asked| &asked.deny_out));
        if allow_out.len().max(deny_out.len()) > Self::MAX_ENTRIES {
            return Err(NetworkError::TooMany);
        }
        let (mut allow, mut names) = (Vec::new(), Vec::new());
        for item in allow_out {
            match address(item) {
                Some(net) => allow.push(net),
                None => names.push(name(item)?),
            }
        }
        let deny = deny_out.iter();
        let mut deny = deny
            .map(|item| address(item).ok_or_else(|| NetworkError::DenyNotAddress(item.clone())))
            .collect::<Result<Vec<_>, _>>()?;
        if internet == Some(false) {
            deny.push(IpNet::V4(Ipv4Net::default()));
        }
        // The client thinks in IPv4: everything is everything.
        if deny.contains(&IpNet::V4(Ipv4Net::default())) {
            deny.push(IpNet::V6(Ipv6Net::default()));
        } else if !names.is_empty() {
            return Err(NetworkError::NamesNeedDenyAll);
        }
        let servers = servers(list(|asked| &asked.dns_servers))?;
        // Without names nothing hinders a sandbox from asking whomever it may reach.
        if !names.is_empty() {
            allow.extend(servers);
        }
        for nets in [&mut allow, &mut deny] {
            nets.sort_unstable();
            nets.dedup();
        }
        names.sort_unstable();
        names.dedup();
        let rules = asked.and_then(|asked| asked.rules.as_ref());
        let headers = rules.map(headers).transpose()?.unwrap_or_default();
        let proxy = asked.and_then(|asked| asked.egress_proxy.as_ref());
        let proxy = proxy.map(ProxyAsked::proxy).transpose()?;
        Ok(NetworkPolicy { mode: NetworkMode::Full, allow, deny, names, headers, proxy })
    }

    /// What needs this server's own settings: `networks`, where proxies may be beside the public
    /// internet. Names are looked up at each connection.
    pub fn proxy_is_allowed(
        policy: &NetworkPolicy,
        networks: &[Ipv4Net],
    ) -> Result<(), NetworkError> {
        match policy.proxy.as_ref().map(|proxy| &proxy.address.host) {
            Some(ProxyHost::Address(address)) if !may_be_proxy(*address, networks) => {
                Err(ProxyError::Inside(*address).into())
            }
            Some(ProxyHost::Address(_) | ProxyHost::Name(_)) | None => Ok(()),
        }
    }

    /// Puts the password of a proxy into the policy that was made of this, and forgets it.
    pub fn seal(
        &mut self,
        policy: &mut NetworkPolicy,
        seal: impl FnOnce(&EgressProxy, &Secret) -> Sealed,
    ) {
        let password = self.egress_proxy.as_mut().and_then(|asked| asked.password.take());
        if let (Some(password), Some(proxy)) = (password, &mut policy.proxy) {
            let sealed = seal(proxy, &password);
            if let Some(login) = &mut proxy.login {
                login.password = sealed;
            }
        }
    }
}

impl ProxyAsked {
    fn proxy(&self) -> Result<EgressProxy, ProxyError> {
        let Self { address, username, password } = self;
        let address = address
            .trim()
            .parse()
            .map_err(|NotAProxyAddress| ProxyError::NotAnAddress(address.clone()))?;
        let username = username.as_deref().filter(|it| !it.is_empty());
        let password = password.as_ref().map(Secret::expose).filter(|it| !it.is_empty());
        let is_long = |text: Option<&str>| {
            text.is_some_and(|text| text.len() > NetworkAsked::MAX_PROXY_LOGIN)
        };
        let login = match (username, password) {
            _ if is_long(username) => return Err(ProxyError::LongUsername),
            _ if is_long(password) => return Err(ProxyError::LongPassword),
            (None, None) => None,
            (Some(_), None) => return Err(ProxyError::NoPassword),
            (None, Some(_)) => return Err(ProxyError::NoUsername),
            (Some(username), Some(_)) => {
                Some(ProxyLogin { username: username.to_owned(), password: Sealed::new("") })
            }
        };
        Ok(EgressProxy { address, login })
    }
}

fn address(item: &str) -> Option<IpNet> {
    let net = item.parse::<IpNet>().or_else(|_| item.parse::<IpAddr>().map(IpNet::from));
    net.map(|net| net.trunc()).ok()
}

fn servers(asked: &[String]) -> Result<Vec<IpNet>, NetworkError> {
    if asked.len() > NetworkAsked::MAX_DNS_SERVERS {
        return Err(NetworkError::TooManyServers);
    }
    let server = |item: &String| {
        let address = item.parse::<Ipv4Addr>();
        let address = address.map_err(|_not_one| NetworkError::NotAServer(item.clone()))?;
        Ok(IpNet::from(IpAddr::V4(address)))
    };
    asked.iter().map(server).collect()
}

/// Hosts of which nothing is said are as if they were not listed.
fn headers(
    rules: &BTreeMap<String, Vec<HostRule>>,
) -> Result<BTreeMap<HostName, Vec<SetHeader>>, NetworkError> {
    if rules.len() > NetworkAsked::MAX_RULED {
        return Err(NetworkError::TooManyRuled);
    }
    let mut by_host = BTreeMap::new();
    for (host, rules) in rules {
        let wrong = |why| NetworkError::Rule { host: host.clone(), why };
        let Ok(NamePattern::One(name)) = name(host) else { return Err(wrong(RuleError::NotHost)) };
        let [rule] = &**rules else {
            if rules.is_empty() {
                continue;
            }
            return Err(wrong(RuleError::TooMany));
        };
        let headers = rule.headers.iter().flatten().map(header).collect::<Result<Vec<_>, _>>();
        let headers = headers.map_err(wrong)?;
        if headers.len() > NetworkAsked::MAX_HEADERS {
            return Err(wrong(RuleError::TooManyHeaders));
        }
        if !headers.is_empty() && by_host.insert(name, headers).is_some() {
            return Err(wrong(RuleError::Twice));
        }
    }
    Ok(by_host)
}

/// What is about the connection and the length of a body is the proxy's, and Host is what the rule
/// is found by.
const NOT_TO_BE_SET: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

fn header((name, value): (&String, &Secret)) -> Result<SetHeader, RuleError> {
    let is_token = |it: u8| it.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&it);
    let length = 1..=NetworkAsked::MAX_HEADER_NAME;
    if !length.contains(&name.len()) || !name.bytes().all(is_token) {
        return Err(RuleError::NotHeader(name.clone()));
    }
    let lower = name.to_ascii_lowercase();
    if NOT_TO_BE_SET.contains(&&*lower) {
        return Err(RuleError::NotToBeSet(name.clone()));
    }
    let text = value.expose();
    let can_be = |it: u8| it == b'\t' || it >= b' ' && it != 0x7f;
    if text.len() > NetworkAsked::MAX_HEADER_VALUE || !text.bytes().all(can_be) {
        return Err(RuleError::NotValue(name.clone()));
    }
    let parts = parts(text).map_err(|why| RuleError::Placeholder { header: name.clone(), why })?;
    for part in parts {
        let header = || name.clone();
        match part {
            Part::Text(_) => {}
            Part::Secret(secret) => {
                secret.parse::<SecretName>().map_err(|why| {
                    let secret = secret.to_owned();
                    RuleError::NotASecret { header: header(), secret, why }
                })?;
            }
            // Whether the sandbox has it, egress finds out: copies have the rule and no tokens.
            Part::Token(token) => {
                token.parse::<TokenName>().map_err(|why| {
                    let token = token.to_owned();
                    RuleError::NotAToken { header: header(), token, why }
                })?;
            }
        }
    }
    Ok(SetHeader { name: lower, value: value.clone() })
}

/// In ASCII, as DNS and TLS have it.
fn name(item: &str) -> Result<NamePattern, NetworkError> {
    let wrong = || NetworkError::AllowNotKnown(item.to_owned());
    let (wildcard, name) = item.strip_prefix("*.").map_or(("", item), |rest| ("*.", rest));
    if name == "*" && wildcard.is_empty() {
        return Ok(NamePattern::Any);
    }
    let name = idna::domain_to_ascii(name).map_err(|_not_a_name| wrong())?;
    format!("{wildcard}{name}").parse().map_err(|_not_a_name| wrong())
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    #[test]
    fn table() {
        let ok = |allow: &str, deny: &str| Ok((allow.to_owned(), deny.to_owned()));
        for (why, allow, deny, internet, expected) in [
            ("nothing said", "", "", None, ok("", "")),
            ("internet said aloud", "", "", Some(true), ok("", "")),
            ("no internet", "", "", Some(false), ok("", "0.0.0.0/0 ::/0")),
            ("no internet but one", "1.1.1.1", "", Some(false), ok("1.1.1.1/32", "0.0.0.0/0 ::/0")),
            ("an address", "", "8.8.8.8", None, ok("", "8.8.8.8/32")),
            ("host bits are cut", "", "10.1.2.3/8", None, ok("", "10.0.0.0/8")),
            ("v6", "2001:db8::1", "", None, ok("2001:db8::1/128", "")),
            ("said twice", "", "8.8.8.8 8.8.8.8/32", None, ok("", "8.8.8.8/32")),
            ("all", "", "0.0.0.0/0", None, ok("", "0.0.0.0/0 ::/0")),
            ("a name to deny", "", "a.b", None, Err(NetworkError::DenyNotAddress("a.b".into()))),
            ("a name to allow", "*.b", "", None, Err(NetworkError::NamesNeedDenyAll)),
            (
                "a name and two halves",
                "b",
                "0.0.0.0/1 128.0.0.0/1",
                None,
                Err(NetworkError::NamesNeedDenyAll),
            ),
            ("a name, no internet else", "A.b.", "", Some(false), ok("a.b", "0.0.0.0/0 ::/0")),
            (
                "names",
                "*.b 1.1.1.1 b b",
                "0.0.0.0/0",
                None,
                ok("1.1.1.1/32 b *.b", "0.0.0.0/0 ::/0"),
            ),
            ("any name", "*", "0.0.0.0/0", None, ok("*", "0.0.0.0/0 ::/0")),
            (
                "in another script",
                "*.BÜCHER.example",
                "0.0.0.0/0",
                None,
                ok("*.xn--bcher-kva.example", "0.0.0.0/0 ::/0"),
            ),
            (
                "not a name",
                "a_b/c",
                "0.0.0.0/0",
                None,
                Err(NetworkError::AllowNotKnown("a_b/c".into())),
            ),
            (
                "a star inside",
                "a.*.b",
                "0.0.0.0/0",
                None,
                Err(NetworkError::AllowNotKnown("a.*.b".into())),
            ),
            (
                "half an address",
                "1.1.1",
                "0.0.0.0/0",
                None,
                Err(NetworkError::AllowNotKnown("1.1.1".into())),
            ),
            (
                "33 bits",
                "",
                "1.1.1.1/33",
                None,
                Err(NetworkError::DenyNotAddress("1.1.1.1/33".into())),
            ),
        ] {
            let list = |text: &str| Some(text.split_whitespace().map(str::to_owned).collect());
            let asked = NetworkAsked {
                allow_out: list(allow),
                deny_out: list(deny),
                ..NetworkAsked::default()
            };
            let text = |nets: &[IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>();
            let policy = NetworkAsked::policy(Some(&asked), internet);
            let print = |policy: NetworkPolicy| {
                let names = policy.names.iter().map(ToString::to_string);
                let allow: Vec<_> = text(&policy.allow).into_iter().chain(names).collect();
                (allow.join(" "), text(&policy.deny).join(" "))
            };
            assert_eq!(policy.map(print), expected, "{why}");
        }
        assert_eq!(NetworkAsked::policy(None, None), Ok(NetworkPolicy::OPEN));
    }

    #[test]
    fn what_requests_are_given() {
        let rule = |pairs: &[(&str, &str)]| HostRule {
            headers: Some(
                pairs.iter().map(|(name, value)| ((*name).into(), Secret::new(*value))).collect(),
            ),
        };
        let given = |rules: &[(&str, &[HostRule])]| {
            let rules = rules.iter().map(|(host, rules)| ((*host).into(), rules.to_vec()));
            let asked = NetworkAsked { rules: Some(rules.collect()), ..NetworkAsked::default() };
            NetworkAsked::policy(Some(&asked), None).map(|policy| policy.headers)
        };
        let one = rule(&[("X-One", "1")]);
        let set =
            |name: &str, value: &str| SetHeader { name: name.into(), value: Secret::new(value) };
        let host = |name: &str| name.parse::<HostName>().unwrap();
        let expected = [(host("a.b"), vec![set("x-one", "1")]), (host("c"), vec![set("a", "é")])];
        assert_eq!(
            given(&[
                ("A.b.", slice::from_ref(&one)),
                ("c", &[rule(&[("A", "é")])]),
                ("d.e", &[]),
                ("f.g", &[HostRule::default()]),
            ]),
            Ok(expected.into())
        );
        for value in ["Bearer ${e2b.secrets.X-y}", "Bearer ${e2b.identity.tokens.a key}"] {
            let filled = rule(&[("A", value)]);
            let expected = [(host("a"), vec![set("a", value)])];
            assert_eq!(given(&[("a", &[filled])]), Ok(expected.into()));
        }
        let wrong = |host: &str, why| Err(NetworkError::Rule { host: host.into(), why });
        for host in ["", "*.a.b", "*", "1.2.3.4", "10.0.0.0/8", "a b"] {
            assert_eq!(given(&[(host, slice::from_ref(&one))]), wrong(host, RuleError::NotHost));
        }
        let twice = [("A.b", slice::from_ref(&one)), ("a.b", slice::from_ref(&one))];
        assert_eq!(given(&twice), wrong("a.b", RuleError::Twice));
        assert_eq!(given(&[("a", &[one.clone(), one.clone()])]), wrong("a", RuleError::TooMany));
        let long = "x".repeat(65);
        let far = "x".repeat(2049);
        for (name, value, why) in [
            ("", "1", RuleError::NotHeader(String::new())),
            ("a b", "1", RuleError::NotHeader("a b".into())),
            ("a:", "1", RuleError::NotHeader("a:".into())),
            (&long, "1", RuleError::NotHeader(long.clone())),
            ("Host", "1", RuleError::NotToBeSet("Host".into())),
            ("Transfer-Encoding", "1", RuleError::NotToBeSet("Transfer-Encoding".into())),
            ("a", "1\r\nb: 2", RuleError::NotValue("a".into())),
            ("a", &far, RuleError::NotValue("a".into())),
            (
                "a",
                "Bearer ${e2b.other.x} b",
                RuleError::Placeholder {
                    header: "a".into(),
                    why: NotAPlaceholder("${e2b.other.x}".into()),
                },
            ),
            (
                "a",
                "Bearer ${e2b.secrets.x y}",
                RuleError::NotASecret {
                    header: "a".into(),
                    secret: "x y".into(),
                    why: NotASecretName,
                },
            ),
            (
                "a",
                "${e2b.identity.tokens.${e2b.secrets.x}}",
                RuleError::NotAToken {
                    header: "a".into(),
                    token: "${e2b.secrets.x".into(),
                    why: NotATokenName,
                },
            ),
        ] {
            assert_eq!(given(&[("a.b", &[rule(&[(name, value)])])]), wrong("a.b", why));
        }
        let names: Vec<String> = (0..21).map(|number| format!("n{number}")).collect();
        let many: Vec<_> = names.iter().map(|name| (&**name, "1")).collect();
        assert_eq!(given(&[("a", &[rule(&many)])]), wrong("a", RuleError::TooManyHeaders));
        assert!(given(&[("a", &[rule(&many[..20])])]).is_ok());
        let hosts: Vec<_> = names[..11].iter().map(|name| (&**name, &[] as &[_])).collect();
        assert_eq!(given(&hosts), Err(NetworkError::TooManyRuled));
        assert_eq!(given(&hosts[..10]), Ok(BTreeMap::new()));
    }

    #[test]
    fn by_whom_connections_leave() {
        let asked = |address: &str, username: Option<&str>, password: Option<&str>| ProxyAsked {
            address: address.into(),
            username: username.map(str::to_owned),
            password: password.map(Secret::new),
        };
        let policy = |proxy: ProxyAsked| {
            let asked = NetworkAsked { egress_proxy: Some(proxy), ..NetworkAsked::default() };
            NetworkAsked::policy(Some(&asked), None)
        };
        let long = "x".repeat(256);
        let fine = Some(&long[1..]);
        for (why, proxy, expected) in [
            ("no port", asked("a.b", None, None), ProxyError::NotAnAddress("a.b".into())),
            ("nothing", asked(" ", None, None), ProxyError::NotAnAddress(" ".into())),
            ("long name", asked("a:1", Some(&long), fine), ProxyError::LongUsername),
            ("long password", asked("a:1", fine, Some(&long)), ProxyError::LongPassword),
            ("a name alone", asked("a:1", Some("me"), Some("")), ProxyError::NoPassword),
            ("a password alone", asked("a:1", None, Some("p")), ProxyError::NoUsername),
        ] {
            assert_eq!(policy(proxy), Err(expected.into()), "{why}");
        }
        for (why, proxy, address, username) in [
            ("open", asked(" Proxy.Example:1080 ", None, None), "proxy.example:1080", None),
            ("empty is absent", asked("203.0.113.5:1", Some(""), None), "203.0.113.5:1", None),
            ("the longest", asked("a:1", fine, fine), "a:1", fine),
        ] {
            let proxy = policy(proxy).unwrap().proxy.unwrap();
            assert_eq!(proxy.address.to_string(), address, "{why}");
            let login = proxy.login.as_ref().map(|login| &*login.username);
            assert_eq!(login, username, "{why}");
        }
        let networks = ["10.0.0.0/8".parse().unwrap()];
        for (address, networks, is_fine) in [
            ("203.0.113.5:1", &[][..], true),
            ("inside.example:1", &[], true),
            ("10.1.1.1:1", &[], false),
            ("10.1.1.1:1", &networks, true),
            ("127.0.0.1:1", &networks, false),
        ] {
            let policy = policy(asked(address, None, None)).unwrap();
            let allowed = NetworkAsked::proxy_is_allowed(&policy, networks);
            assert_eq!(allowed.is_ok(), is_fine, "{address} {networks:?}");
        }
    }

    #[test]
    fn a_password_is_sealed_once_and_kept_nowhere_else() {
        let proxy = ProxyAsked {
            address: "a:1".into(),
            username: Some("me".into()),
            password: Some(Secret::new("p")),
        };
        let mut asked = NetworkAsked { egress_proxy: Some(proxy), ..NetworkAsked::default() };
        let mut policy = NetworkAsked::policy(Some(&asked), None).unwrap();
        asked.seal(&mut policy, |proxy, password| {
            Sealed::new(format!("{} {}", proxy.address, password.expose()))
        });
        let login = policy.proxy.as_ref().unwrap().login.clone().unwrap();
        assert_eq!(login, ProxyLogin { username: "me".into(), password: Sealed::new("a:1 p") });
        assert_eq!(asked.egress_proxy.as_ref().unwrap().password, None);
        asked.seal(&mut policy, |_, _| unreachable!("there is none"));
    }

    #[test]
    fn whom_sandboxes_may_ask_for_names() {
        let asked = |names: &[&str], servers: &[&str]| {
            let list = |of: &[&str]| Some(of.iter().map(|&it| it.to_owned()).collect());
            let asked = NetworkAsked {
                allow_out: list(names),
                dns_servers: list(servers),
                ..NetworkAsked::default()
            };
            let policy = NetworkAsked::policy(Some(&asked), Some(false))?;
            Ok(policy.allow.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        let not_a_server = |text: &str| Err(NetworkError::NotAServer(text.into()));
        for (names, servers, expected) in [
            (&["a.b"][..], &["1.1.1.1", "9.9.9.9"][..], Ok("1.1.1.1/32 9.9.9.9/32".to_owned())),
            (&["a.b", "8.8.8.8"], &["8.8.8.8"], Ok("8.8.8.8/32".to_owned())),
            (&["a.b"], &[], Ok(String::new())),
            (&["8.8.8.8"], &["1.1.1.1"], Ok("8.8.8.8/32".to_owned())),
            (&[], &["1.1.1.1"], Ok(String::new())),
            (&["a.b"], &["1.1.1.0/24"], not_a_server("1.1.1.0/24")),
            (&[], &["dns.example"], not_a_server("dns.example")),
            (&["a.b"], &["2001:db8::1"], not_a_server("2001:db8::1")),
            (&["a.b"], &["1.1.1.1"; 11], Err(NetworkError::TooManyServers)),
        ] {
            assert_eq!(asked(names, servers), expected, "{names:?} {servers:?}");
        }
    }

    #[test]
    fn too_many() {
        let asked = NetworkAsked {
            deny_out: Some(vec!["8.8.8.8".to_owned(); 257]),
            ..NetworkAsked::default()
        };
        assert_eq!(NetworkAsked::policy(Some(&asked), None), Err(NetworkError::TooMany));
    }
}
