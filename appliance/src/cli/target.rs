//! Which server a command speaks to, and with which keys.
//!
//! Flags win over the environment; where neither says anything, the state folder of the appliance
//! on this host does.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use reqwest::Url;
use sandboxo_zone_protocol::Secret;

use crate::{
    cli::Context,
    config::{ClientEnvironment, Config},
    state::StateFolder,
};

#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Reach {
    /// The server [env: `SANDBOXO_URL`, `E2B_API_URL`; else the appliance on this host]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// A client's key [env: `E2B_API_KEY`; else the one in the state folder]
    #[arg(long, global = true, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// The operator's token [env: `SANDBOXO_TOKEN`; else the one in the state folder]
    #[arg(long, global = true, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
}

/// Where to, and who asks. A key that nobody knows is missed when it is needed.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) http: reqwest::Client,
    api: Url,
    sandbox: Url,
    key: Option<Secret>,
    token: Option<Secret>,
    state: StateFolder,
}

impl Target {
    pub(crate) fn find(context: &Context) -> Result<Self> {
        let config = Config::load(&context.flags)?;
        let state = StateFolder::at(&config.state);
        let env = ClientEnvironment::read();
        let reach = &context.reach;
        let api = reach
            .url
            .clone()
            .or(env.api_url)
            .or_else(|| state.read_address())
            .unwrap_or_else(|| format!("http://{}", config.listen()));
        let sandbox = reach.url.clone().or(env.sandbox_url).unwrap_or_else(|| api.clone());
        // A folder that may not be read has no key for us; the need for one is told then.
        let kept = |name| state.secret(name).ok().flatten();
        let key =
            reach.api_key.clone().map(Secret::new).or(env.api_key).or_else(|| kept("api-key"));
        let token = reach
            .token
            .clone()
            .map(Secret::new)
            .or(env.token)
            .or(config.token)
            .or_else(|| kept("token"));
        let http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .tcp_nodelay(true)
            .build()
            .context("make an HTTP client")?;
        Ok(Self { http, api: base(&api)?, sandbox: base(&sandbox)?, key, token, state })
    }

    pub(crate) fn api_url(&self) -> &str {
        self.api.as_str().trim_end_matches('/')
    }

    pub(crate) fn api(&self, path: &str) -> String {
        format!("{}{path}", self.api_url())
    }

    pub(crate) fn sandbox(&self, path: &str) -> String {
        format!("{}{path}", self.sandbox.as_str().trim_end_matches('/'))
    }

    pub(crate) fn key(&self) -> Result<&Secret> {
        self.key.as_ref().ok_or_else(|| self.missing("API key", "E2B_API_KEY", "api-key"))
    }

    pub(crate) fn token(&self) -> Result<&Secret> {
        self.token
            .as_ref()
            .ok_or_else(|| self.missing("operator's token", "SANDBOXO_TOKEN", "token"))
    }

    fn missing(&self, what: &str, variable: &str, file: &str) -> anyhow::Error {
        anyhow!(
            "no {what}: set {variable}, or name the appliance's state folder with --state \
             ({} has no {file} that can be read)",
            self.state.root().display()
        )
    }
}

fn base(text: &str) -> Result<Url> {
    let url = Url::parse(text).with_context(|| format!("{text:?} is not a URL"))?;
    match url.scheme() {
        "http" => Ok(url),
        scheme => Err(anyhow!("{text}: only http:// is spoken here, not {scheme}://")),
    }
}
