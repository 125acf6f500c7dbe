//! The appliance: is it there, can it be used, does a sandbox start.

use anyhow::Result;
use reqwest::Method;
use sandboxo_agent_proto::process::{ProcessConfig, StartRequest, process_event::Event};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Finding, Outcome};
use crate::cli::{
    Context,
    admin::{cell, rows},
    agent::Agent,
    api,
    target::Target,
};

pub(super) async fn check(context: &Context) -> Vec<Finding> {
    let finding = |check, outcome| Finding { check, outcome };
    let target = match Target::find(context) {
        Ok(target) => target,
        Err(error) => {
            return vec![finding(
                "appliance",
                Outcome::bad(format!("{error:#}"), "mend the address"),
            )];
        }
    };
    let mut findings = vec![
        finding("appliance", health(&target).await),
        finding("operator's token", admin(&target).await),
        finding("keeper", keeper(&target).await),
        finding("template base", base(&target).await),
    ];
    let outcome = if findings.iter().all(|finding| finding.outcome.is_good()) {
        sandbox(&target).await
    } else {
        Outcome::Skipped { found: "a check before it failed".into() }
    };
    findings.push(finding("a sandbox", outcome));
    findings
}

async fn health(target: &Target) -> Outcome {
    let answer = target.http.request(Method::GET, target.api("/health")).send().await;
    match api::reached(answer) {
        Ok(answer) if answer.status().is_success() => Outcome::good(target.api_url()),
        Ok(answer) => Outcome::bad(
            format!("{} answers {}", target.api_url(), answer.status()),
            "look into its log",
        ),
        Err(error) => {
            Outcome::bad(format!("{error:#}"), "start it: `sandboxo serve` or `./dev up`")
        }
    }
}

async fn admin(target: &Target) -> Outcome {
    match target.admin_get("/zone").await {
        Ok(zone) => {
            let number = |path: &str| zone.pointer(path).and_then(Value::as_u64).unwrap_or(0);
            Outcome::good(format!(
                "accepted; {} sandboxes run, {} are warm",
                number("/capacity/running"),
                number("/capacity/warm")
            ))
        }
        Err(error) => Outcome::bad(
            format!("{error:#}"),
            "set SANDBOXO_TOKEN, or name the state folder with --state",
        ),
    }
}

async fn keeper(target: &Target) -> Outcome {
    match target.admin_get("/zone").await {
        Ok(zone) => keeper_outcome(&cell(&zone, "build"), &cell(&zone, "keeperBuild")),
        Err(error) => Outcome::bad(format!("{error:#}"), "see the checks before"),
    }
}

fn keeper_outcome(appliance: &str, keeper: &str) -> Outcome {
    if appliance == keeper {
        Outcome::good(format!("is the appliance's program, {appliance}"))
    } else {
        Outcome::warning(
            format!("is {keeper}, and the appliance {appliance}"),
            "nothing is lost by it; the appliance's log says why at its start, and its next start \
             tries again",
        )
    }
}

async fn base(target: &Target) -> Outcome {
    let is_base = |template: &Value| cell(template, "name") == "base";
    match target.admin_get("/templates").await {
        Ok(templates) if rows(&templates).iter().any(is_base) => Outcome::good("is there"),
        Ok(_) => Outcome::bad("there is none", "make it: `sandboxo template base`"),
        Err(error) => Outcome::bad(format!("{error:#}"), "see the checks before"),
    }
}

/// Boots one, runs a command in it, and kills it.
async fn sandbox(target: &Target) -> Outcome {
    let begin = Instant::now();
    match boot(target).await {
        Ok(said) if said == "hi\n" => {
            Outcome::good(format!("said hi after {} ms", begin.elapsed().as_millis()))
        }
        Ok(said) => Outcome::bad(format!("said {said:?}"), "look into the appliance's log"),
        Err(error) => Outcome::bad(format!("{error:#}"), "look into the appliance's log"),
    }
}

async fn boot(target: &Target) -> Result<String> {
    let sandbox = target.create(&json!({ "templateID": "base", "timeout": 60 })).await?;
    let said = say_hi(&Agent::of(target, &sandbox, None)).await;
    target.kill(&sandbox.id).await?;
    said
}

async fn say_hi(agent: &Agent) -> Result<String> {
    use sandboxo_agent_proto::process::process_event::{DataEvent, data_event::Output};
    let process = ProcessConfig {
        cmd: "/bin/bash".into(),
        args: ["-l", "-c", "echo hi"].map(str::to_owned).to_vec(),
        envs: std::collections::BTreeMap::new(),
        cwd: None,
    };
    let start = StartRequest { process: Some(process), pty: None, tag: None, stdin: Some(false) };
    let mut events = agent.start(&start, Some(std::time::Duration::from_secs(30))).await?;
    let mut said = Vec::new();
    while let Some(event) = events.next().await? {
        if let Some(Event::Data(DataEvent { output: Some(Output::Stdout(bytes)) })) = event.event {
            said.extend_from_slice(&bytes);
        }
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_keeper_is_named() {
        assert!(matches!(keeper_outcome("1-a", "1-a"), Outcome::Good { .. }));
        let Outcome::Warning { found, .. } = keeper_outcome("1-b", "1-a") else { panic!("good") };
        assert_eq!(found, "is 1-a, and the appliance 1-b");
    }
}
