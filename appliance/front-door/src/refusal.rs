//! What the front door answers when it can't pass a request on. Pure: a failure and the way in
//! give a status and a sentence.
//!
//! SDKs read some of these: 502 on `/health` means that a sandbox is gone, and newer ones look for
//! "was not found" and "port is not open" in the message. Browsers get a page instead of JSON.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{
        ACCEPT, ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, USER_AGENT,
    },
};
use sandboxo_zone_protocol::AGENT_PORT;
use serde::Serialize;

use crate::target::Surface;

/// Where the code interpreter of that template listens; its SDK expects the agent's manners of it.
const INTERPRETER_PORT: u16 = 49999;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// There is none, or it isn't running.
    NoSandbox,
    PortClosed,
    /// It is open, and does not speak the TLS that it is said to speak.
    NotTls,
    /// It is, and traffic doesn't wake it.
    Paused,
    /// It is on its way to a pause or back.
    Moving,
    /// Waking it failed, in a way that another try would meet again.
    NotResumed,
    /// Waking it failed for want of room, or of a zone.
    ResumeLater,
    ResumeTimeout,
    /// As many requests as may wait for sandboxes to wake.
    LotFull,
    TrafficTokenMissing,
    TrafficTokenWrong,
    /// A route of the agent that is for its zone only.
    AgentRoute,
    /// It runs, and its agent doesn't answer.
    AgentLost,
    TooManyConnections,
    /// The appliance passes as many requests as it may.
    Busy,
    ZoneUnavailable,
    /// The program took the request and closed without an answer.
    NoAnswer,
    /// Its answer isn't HTTP.
    BadAnswer,
    AnswerTimeout,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused<'r> {
    pub failure: Failure,
    pub surface: Surface,
    pub id: &'r str,
    pub port: u16,
    pub path: &'r str,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Told<'r> {
    #[serde(rename = "sandboxId", skip_serializing_if = "Option::is_none")]
    sandbox_id: Option<&'r str>,
    message: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'r str>,
    code: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<&'static str>,
}

impl Refused<'_> {
    pub(crate) fn status(&self) -> StatusCode {
        match self.failure {
            Failure::NoSandbox => match self.surface {
                Surface::E2bHeader => StatusCode::BAD_GATEWAY,
                Surface::E2bHost if matches!(self.port, AGENT_PORT | INTERPRETER_PORT) => {
                    StatusCode::BAD_GATEWAY
                }
                Surface::E2bHost | Surface::AgentEnv => StatusCode::NOT_FOUND,
            },
            Failure::AgentRoute => StatusCode::NOT_FOUND,
            Failure::Paused => match self.surface {
                Surface::E2bHeader | Surface::E2bHost => StatusCode::BAD_GATEWAY,
                Surface::AgentEnv => StatusCode::GONE,
            },
            // Clients of the agent read its 409 as "it is there already".
            Failure::Moving => match self.surface {
                Surface::E2bHeader | Surface::E2bHost if self.port != AGENT_PORT => {
                    StatusCode::CONFLICT
                }
                Surface::E2bHeader | Surface::E2bHost | Surface::AgentEnv => {
                    StatusCode::SERVICE_UNAVAILABLE
                }
            },
            Failure::NotResumed => match self.surface {
                Surface::E2bHeader | Surface::E2bHost => StatusCode::INTERNAL_SERVER_ERROR,
                Surface::AgentEnv => StatusCode::BAD_GATEWAY,
            },
            Failure::ResumeLater => match self.surface {
                Surface::E2bHeader | Surface::E2bHost => StatusCode::SERVICE_UNAVAILABLE,
                Surface::AgentEnv => StatusCode::BAD_GATEWAY,
            },
            Failure::ResumeTimeout => match self.surface {
                Surface::E2bHeader | Surface::E2bHost => StatusCode::SERVICE_UNAVAILABLE,
                Surface::AgentEnv => StatusCode::GATEWAY_TIMEOUT,
            },
            Failure::TrafficTokenMissing | Failure::TrafficTokenWrong => StatusCode::FORBIDDEN,
            Failure::TooManyConnections => StatusCode::TOO_MANY_REQUESTS,
            Failure::Busy | Failure::LotFull | Failure::ZoneUnavailable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Failure::PortClosed
            | Failure::NotTls
            | Failure::AgentLost
            | Failure::NoAnswer
            | Failure::BadAnswer => StatusCode::BAD_GATEWAY,
            Failure::AnswerTimeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    fn message(&self) -> &'static str {
        match self.failure {
            Failure::NoSandbox | Failure::Paused if self.status() == StatusCode::BAD_GATEWAY => {
                "The sandbox was not found"
            }
            Failure::NoSandbox => "sandbox not found",
            Failure::Paused => "The sandbox is paused",
            Failure::Moving => "The sandbox is being paused or resumed",
            Failure::NotResumed => "The sandbox is paused and was not resumed",
            Failure::ResumeLater => "The sandbox can't be resumed at the moment",
            Failure::ResumeTimeout => "The sandbox was not resumed in time",
            Failure::LotFull => "Too many requests wait for sandboxes to resume",
            Failure::PortClosed => "The sandbox is running but port is not open",
            Failure::NotTls => {
                "The sandbox is running but port does not speak TLS, as httpsPorts has it"
            }
            Failure::TrafficTokenMissing => {
                "The sandbox asks for the header e2b-traffic-access-token"
            }
            Failure::TrafficTokenWrong => "The value of e2b-traffic-access-token is wrong",
            Failure::AgentRoute => "Not found",
            Failure::AgentLost => "The sandbox is running but does not answer",
            Failure::TooManyConnections => "Too many connections to this sandbox",
            Failure::Busy => "Too many requests are on their way to sandboxes",
            Failure::ZoneUnavailable => "The sandbox can't be reached at the moment",
            Failure::NoAnswer => {
                "The program in the sandbox closed the connection without an answer"
            }
            Failure::BadAnswer => "The program in the sandbox gave an answer that is not HTTP",
            Failure::AnswerTimeout => "The program in the sandbox did not answer in time",
        }
    }

    /// Seconds, for what passes by itself.
    fn retry_after(&self) -> Option<&'static str> {
        match self.failure {
            Failure::TooManyConnections | Failure::Busy | Failure::Moving => Some("1"),
            Failure::ZoneUnavailable => Some("2"),
            Failure::ResumeLater | Failure::ResumeTimeout if self.surface != Surface::AgentEnv => {
                Some("2")
            }
            // Those that would come back would find it full once more, all at once.
            Failure::LotFull
            | Failure::ResumeLater
            | Failure::ResumeTimeout
            | Failure::NotResumed
            | Failure::Paused
            | Failure::NoSandbox
            | Failure::PortClosed
            | Failure::NotTls
            | Failure::TrafficTokenMissing
            | Failure::TrafficTokenWrong
            | Failure::AgentRoute
            | Failure::AgentLost
            | Failure::NoAnswer
            | Failure::BadAnswer
            | Failure::AnswerTimeout => None,
        }
    }

    pub(crate) fn respond(&self, request: &HeaderMap) -> Response {
        let status = self.status();
        let mut response = if is_browser(request) {
            page(status, self.message(), Some(self.id))
        } else {
            let named = self.failure != Failure::AgentRoute;
            json(
                status,
                &Told {
                    sandbox_id: named.then_some(self.id),
                    message: self.message(),
                    port: matches!(self.failure, Failure::PortClosed | Failure::NotTls)
                        .then_some(self.port),
                    path: (!named).then_some(self.path),
                    code: status.as_u16(),
                    error_code: (self.failure == Failure::LotFull)
                        .then_some("proxy_parking_lot_full"),
                },
            )
        };
        if matches!(self.failure, Failure::NoSandbox | Failure::Paused) {
            // It never comes back by itself; without this the Python client asks four times.
            response.headers_mut().insert("should-retry", HeaderValue::from_static("false"));
        }
        if let Some(seconds) = self.retry_after() {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        response
    }
}

/// 400: names what is wrong with the request's routing, in plain text.
pub(crate) fn malformed(why: &str) -> Response {
    finish((StatusCode::BAD_REQUEST, format!("{why}\n")).into_response())
}

/// A sandbox's name without a port.
pub(crate) fn no_such_sandbox(request: &HeaderMap, id: &str) -> Response {
    Refused { failure: Failure::NoSandbox, surface: Surface::AgentEnv, id, port: 0, path: "" }
        .respond(request)
}

/// A name under a configured domain that nothing answers to.
pub(crate) fn unknown_host(request: &HeaderMap) -> Response {
    plain(request, StatusCode::NOT_FOUND, "unknown app")
}

/// A signed URL that fits no running sandbox.
pub(crate) fn bad_signature(request: &HeaderMap) -> Response {
    plain(request, StatusCode::UNAUTHORIZED, "invalid signature")
}

fn plain(request: &HeaderMap, status: StatusCode, message: &'static str) -> Response {
    if is_browser(request) {
        return page(status, message, None);
    }
    let code = status.as_u16();
    json(
        status,
        &Told { sandbox_id: None, message, port: None, path: None, code, error_code: None },
    )
}

fn json(status: StatusCode, body: &Told<'_>) -> Response {
    let text = serde_json::to_string(body).unwrap_or_else(|_impossible| "{}".to_owned());
    finish((status, [(CONTENT_TYPE, "application/json")], text).into_response())
}

fn page(status: StatusCode, message: &str, id: Option<&str>) -> Response {
    let sandbox = id.map(|id| format!("<p><code>{}</code></p>", escape(id))).unwrap_or_default();
    let text = include_str!("pages/refusal.html")
        .replace("{status}", status.as_str())
        .replace("{message}", &escape(message))
        .replace("{sandbox}", &sandbox);
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, html);
    finish(response)
}

/// A script of another origin may read why it failed; nobody may keep the answer.
fn finish(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A person looks at it: a browser's name, no wish for JSON, and not fetched by a script.
fn is_browser(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let browser = text(USER_AGENT.as_str()).is_some_and(|agent| agent.starts_with("Mozilla/"));
    let json = text(ACCEPT.as_str()).is_some_and(|accept| accept.contains("application/json"));
    let script = text("sec-fetch-dest") == Some("empty")
        || text("x-requested-with").is_some_and(|by| by.eq_ignore_ascii_case("xmlhttprequest"));
    browser && !json && !script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        use Surface::{AgentEnv, E2bHeader, E2bHost};
        let gone = Failure::NoSandbox;
        for (failure, surface, port, expected) in [
            (gone, E2bHeader, 49983, "502 The sandbox was not found"),
            (
                Failure::NotTls,
                E2bHost,
                8443,
                "502 The sandbox is running but port does not speak TLS, as httpsPorts has it",
            ),
            (gone, E2bHeader, 8080, "502 The sandbox was not found"),
            (gone, E2bHost, 49983, "502 The sandbox was not found"),
            (gone, E2bHost, 49999, "502 The sandbox was not found"),
            (gone, E2bHost, 8080, "404 sandbox not found"),
            (gone, AgentEnv, 49983, "404 sandbox not found"),
            (Failure::PortClosed, E2bHost, 8080, "502 The sandbox is running but port is not open"),
            (Failure::PortClosed, AgentEnv, 80, "502 The sandbox is running but port is not open"),
            (Failure::Paused, E2bHeader, 49983, "502 The sandbox was not found"),
            (Failure::Paused, E2bHost, 8080, "502 The sandbox was not found"),
            (Failure::Paused, AgentEnv, 8080, "410 The sandbox is paused"),
            (Failure::Moving, E2bHeader, 49983, "503 The sandbox is being paused or resumed"),
            (Failure::Moving, E2bHost, 8080, "409 The sandbox is being paused or resumed"),
            (Failure::NotResumed, E2bHost, 80, "500 The sandbox is paused and was not resumed"),
            (Failure::NotResumed, AgentEnv, 80, "502 The sandbox is paused and was not resumed"),
            (Failure::ResumeLater, E2bHost, 80, "503 The sandbox can't be resumed at the moment"),
            (Failure::ResumeLater, AgentEnv, 80, "502 The sandbox can't be resumed at the moment"),
            (Failure::ResumeTimeout, E2bHost, 80, "503 The sandbox was not resumed in time"),
            (Failure::ResumeTimeout, AgentEnv, 80, "504 The sandbox was not resumed in time"),
            (Failure::LotFull, E2bHost, 80, "503 Too many requests wait for sandboxes to resume"),
            (
                Failure::AnswerTimeout,
                AgentEnv,
                80,
                "504 The program in the sandbox did not answer in time",
            ),
        ] {
            let refused = Refused { failure, surface, id: "x", port, path: "/" };
            let told = format!("{} {}", refused.status().as_u16(), refused.message());
            assert_eq!(told, expected, "{failure:?} {surface:?} {port}");
        }
    }

    #[test]
    fn the_documentation_has_every_answer() {
        let documentation = include_str!("../../../docs/errors.md");
        for failure in [
            Failure::NoSandbox,
            Failure::PortClosed,
            Failure::Paused,
            Failure::Moving,
            Failure::NotResumed,
            Failure::ResumeLater,
            Failure::ResumeTimeout,
            Failure::LotFull,
            Failure::TrafficTokenMissing,
            Failure::TrafficTokenWrong,
            Failure::AgentRoute,
            Failure::AgentLost,
            Failure::TooManyConnections,
            Failure::Busy,
            Failure::ZoneUnavailable,
            Failure::NoAnswer,
            Failure::BadAnswer,
            Failure::AnswerTimeout,
        ] {
            for surface in [Surface::E2bHeader, Surface::AgentEnv] {
                let refused = Refused { failure, surface, id: "x", port: 80, path: "/" };
                let told = format!("| {} `{}`", refused.status().as_u16(), refused.message());
                assert!(documentation.contains(&told), "{told}");
            }
        }
    }

    #[test]
    fn who_is_a_browser() {
        let firefox = ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101");
        let html = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
        for (why, list, expected) in [
            ("a page", vec![firefox, html], true),
            ("navigation", vec![firefox, html, ("sec-fetch-dest", "document")], true),
            ("curl", vec![("user-agent", "curl/8.5.0"), ("accept", "*/*")], false),
            ("fetch", vec![firefox, ("accept", "*/*"), ("sec-fetch-dest", "empty")], false),
            ("old script", vec![firefox, ("x-requested-with", "XMLHttpRequest")], false),
            ("JSON wanted", vec![firefox, ("accept", "application/json")], false),
            ("no name", vec![html], false),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in list {
                headers.insert(name, value.parse().unwrap());
            }
            assert_eq!(is_browser(&headers), expected, "{why}");
        }
    }

    #[tokio::test]
    async fn a_page_escapes_what_the_client_wrote() {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static("Mozilla/5.0"));
        let response = no_such_sandbox(&headers, "<script>\"&");
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        assert!(text.contains("&lt;script&gt;&quot;&amp;"), "{text}");
        assert!(!text.contains("<script>"), "{text}");
    }
}
